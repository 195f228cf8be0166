// SPDX-License-Identifier: Apache-2.0
// Any text as a codec program: it is rejected with printable problems, or it is a codec that satisfies the contract
// of tithe/seam/codec.h.
#include <fmt/format.h>

#include <filesystem>

#include "base/rng.h"
#include "fuzz/targets.h"
#include "lang/cuda/emit_cuda.h"
#include "lang/loader.h"
#include "support/scratch.h"

namespace tithe::fuzz {
namespace {

constexpr std::size_t kMaxText = 4000;

std::vector<float> some_values(std::size_t n, std::uint32_t seed) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t draw = draw32(seed, static_cast<std::uint32_t>(i));
    v[i] = draw % 5 == 0 ? 0.0F : (static_cast<float>(draw >> 8) - 0x1p23F) * 0x1p-20F;
  }
  return v;
}

// Computes the context of the last phase for two ranks with the same values, one of which may send any bytes. False:
// the values are reported as not finite.
bool agree(const Codec& codec, Call& call, const std::vector<float>& grad, Input& context) {
  const Impl& impl = codec.reference();
  const std::size_t n = grad.size();
  for (call.phase = 0; call.phase + 1U < codec.phases.size(); ++call.phase) {
    const Phase& phase = codec.phases[call.phase];
    call.context = context;
    Input payload(phase.bound(call.settings, n));
    const Result<Encoded> done = impl.encode(call, {grad.data(), nullptr, nullptr, n}, payload);
    if (!done.ok() && done.status().code() != Code::kUnsupported)
      fail("encode of a phase failed: " + done.status().what());
    if (!done.ok() || !done->finite) return false;
    if (done->bytes > payload.size()) fail("encode of a phase wrote more than its bound");
    payload.resize(done->bytes);
    if (const Status s = impl.check(call, n, payload); !s.ok())
      fail("a phase refuses its own payload: " + s.what());
    if (phase.combines()) {
      Input acc = payload, changed = payload;
      if (!impl.combine(call, n, acc, payload, nullptr).ok())
        fail("a phase cannot combine two of its own payloads");
      if (!impl.check(call, n, acc).ok()) fail("a phase refuses the combination of its payloads");
      if (!changed.empty()) changed[n % changed.size()] ^= 1;
      Input other = payload;
      if (impl.combine(call, n, other, changed, nullptr).ok() && !impl.check(call, n, other).ok())
        fail("a phase accepts payloads whose combination it refuses");
      payload = acc;
    }
    context = std::move(payload);
  }
  call.context = context;
  return true;
}

void run_program(const lang::LoadedProgram& program, std::uint32_t seed) {
  const Codec& codec = program.codec;
  const Impl& impl = codec.reference();
  Call call{.settings = defaults(codec), .seed = 1, .shared_seed = 2, .round = 3};
  for (const std::size_t n : {0, 1, 37}) {
    const ScratchForTest scratch(codec, call.settings, n);
    call.scratch = scratch;
    const std::vector<float> grad = some_values(n, seed);
    std::vector<float> left(n), out(n, 99.0F);
    Input context;
    if (!agree(codec, call, grad, context)) continue;
    Input payload(codec.phases.back().bound(call.settings, n));
    const Result<Encoded> done = impl.encode(call, {grad.data(), nullptr, left.data(), n}, payload);
    if (!done.ok() && done.status().code() != Code::kUnsupported)
      fail("encode of a program failed: " + done.status().what());
    if (!done.ok() || !done->finite) continue;
    if (done->bytes > payload.size()) fail("encode of a program wrote more than its bound");
    payload.resize(done->bytes);
    if (const Status s = impl.check(call, n, payload); !s.ok())
      fail("a program refuses its own payload: " + s.what());
    const std::vector<ByteView> views{ByteView(payload)};
    if (const Status s = impl.decode(call, views, {}, out); !s.ok())
      fail("a program cannot decode its own payload: " + s.what());
    for (std::size_t i = 0; i < n; ++i)
      if (left[i] != grad[i] - out[i])
        fail(fmt::format("value {}: {} taken, {} sent, {} left", i, grad[i], out[i], left[i]));
    if (!payload.empty()) payload[seed % payload.size()] ^= static_cast<std::uint8_t>(1U << seed % 8);
    const std::vector<ByteView> changed{ByteView(payload)};
    const bool accepted = impl.check(call, n, payload).ok();
    if (impl.decode(call, changed, {}, out).ok() != accepted) fail("check and decode of a program differ");
  }
}

void run_text(ByteView bytes) {
  if (bytes.size() > kMaxText) return;
  const lang::Source source{"fuzz.codec", std::string(bytes.begin(), bytes.end())};
  lang::Problems problems;
  const auto program = lang::compile(source, problems);
  if ((program == nullptr) != problems.any()) fail("neither a program nor a problem, or both");
  if (program == nullptr) {
    if (problems.text(source).empty()) fail("a problem without text");
    return;
  }
  const Settings settings = defaults(program->codec);
  for (std::size_t p = 0; p < program->phases.size(); ++p) {
    const lang::Combination& of = program->of(settings, p);
    if (lang::no_kernels(of, settings) == nullptr && lang::cuda_file(of).empty())
      fail("generated kernels are empty");
  }
  run_program(*program, static_cast<std::uint32_t>(bytes.size()));
}

}  // namespace

void add_lang_targets(std::vector<Target>& targets) {
  std::vector<Input> seeds;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TITHE_SOURCE_DIR "/codecs"))
    if (entry.path().extension() == lang::kEnding)
      if (const Result<lang::Source> source = lang::read_source(entry.path().string()); source.ok())
        seeds.emplace_back(source->text.begin(), source->text.end());
  targets.push_back({"lang", run_text, std::move(seeds)});
}

}  // namespace tithe::fuzz
