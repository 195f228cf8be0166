// SPDX-License-Identifier: Apache-2.0
#include "lang/kernel_source.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lang/library.h"
#include "lang/run/verify.h"
#include "tithe/seam/machine.h"

namespace tithe::lang {
namespace {

const LoadedProgram* program_of(const Codec& codec) {
  if (codec.program != nullptr) return codec.program;
  static std::mutex mutex;
  static std::map<std::string, const LoadedProgram*, std::less<>> known;
  const std::lock_guard lock(mutex);
  const auto at = known.find(codec.name);
  if (at != known.end()) return at->second;
  const auto texts = kernel_texts();
  const bool has = std::ranges::any_of(texts, [&](const ProgramText& t) { return t.name == codec.name; });
  return known[std::string(codec.name)] = has ? &library_program(codec.name) : nullptr;
}

// Converts settings by parameter name. A parameter that the program lacks must have its default value.
std::optional<Settings> mapped(const Codec& codec, const Settings& from, const Codec& to) {
  Settings out = defaults(to);
  for (std::size_t i = 0; i < codec.params.size(); ++i) {
    const ParamSpec& had = codec.params[i];
    const auto at = std::ranges::find(to.params, had.name, &ParamSpec::name);
    if (at == to.params.end()) {
      if (from[i] != had.fallback) return {};
      continue;
    }
    double value = from[i];
    if (!had.choices.empty()) {
      const auto word = std::ranges::find(at->choices, had.choices[static_cast<std::size_t>(value)]);
      if (word == at->choices.end()) return {};
      value = static_cast<double>(word - at->choices.begin());
    } else if (!at->choices.empty()) {
      const auto word = std::ranges::find_if(at->choices, [&](std::string_view w) {
        return !w.empty() && w.find_first_not_of("0123456789") == std::string_view::npos &&
               std::stod(std::string(w)) == value;
      });
      if (word == at->choices.end()) return {};
      value = static_cast<double>(word - at->choices.begin());
    }
    out.value[static_cast<std::size_t>(at - to.params.begin())] = value;
  }
  return out;
}

// Compares codec and program on the values of all kinds that matches_interpreter() generates.
bool does_the_same(const Codec& codec, const Settings& settings, const KernelSource& source) {
  const Impl& impl = codec.best(this_machine());
  std::vector<std::uint8_t> scratch;
  const auto mine = [&](Call call, std::size_t n) {
    call.settings = settings;
    scratch.resize(codec.scratch(settings, n) + 64);
    const std::size_t off = (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
    call.scratch = Bytes(scratch).subspan(off, scratch.size() - 64);
    return call;
  };
  const VerifiedFunctions runs = {
      [&](std::string_view, const Call& call, const EncodeInput& in, Bytes out) {
        return impl.encode(mine(call, in.n), in, out);
      },
      [&](std::string_view, const Call& call, std::span<const ByteView> payloads, const Merge& merge,
          std::span<float> out) { return impl.decode(mine(call, out.size()), payloads, merge, out); }};
  return matches_interpreter(runs, source.program->of(source.settings), source.settings, kAllKinds);
}

}  // namespace

std::optional<KernelSource> kernel_source(const Codec& codec, const Settings& settings) {
  const LoadedProgram* program = program_of(codec);
  if (program == nullptr) return {};
  if (codec.program != nullptr) return KernelSource{program, settings};
  const std::optional<Settings> own = mapped(codec, settings, program->codec);
  if (!own) return {};
  const KernelSource source{program, *own};
  static std::mutex mutex;
  static std::map<std::pair<const Codec*, std::array<double, kMaxParams>>, bool> held;
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = held.try_emplace({&codec, settings.value}, false);
  if (fresh) at->second = does_the_same(codec, settings, source);
  return at->second ? std::optional(source) : std::nullopt;
}

Settings kernel_settings(const KernelSource& source, const Codec& codec, const Settings& settings) {
  if (codec.program != nullptr) return settings;
  return mapped(codec, settings, source.program->codec).value_or(source.settings);
}

}  // namespace tithe::lang
