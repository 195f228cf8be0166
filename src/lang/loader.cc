// SPDX-License-Identifier: Apache-2.0
#include "lang/loader.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>

#include "base/text.h"
#include "codec/common/payload.h"
#include "codec/loaded_codecs.h"
#include "codec/sparse/sparsifier.h"
#include "lang/checker.h"
#include "lang/parse.h"
#include "lang/slots.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kMostShown = 200;  // bytes of a path
constexpr Law kDecodeLaw[] = {Law::kDecode};

// All that this process has loaded. They stay.
struct Loaded {
  std::mutex one_at_a_time;
  std::vector<const LoadedProgram*> all;
} loaded;

const Claim* claim_of(const File& file, std::string_view name) {
  for (const Claim& c : file.claims)
    if (c.name.text == name) return &c;
  return nullptr;
}

void fill_params(LoadedProgram& p) {
  const std::size_t count = p.file.params.size();
  p.words.resize(count);
  p.choices.resize(count);
  for (std::size_t k = 0; k < count; ++k) {
    const Param& from = p.file.params[k];
    const std::vector<double> values = values_of(from);
    p.counts.push_back(values.size());
    ParamSpec to{.name = from.name.text,
                 .fallback = from.fallback,
                 .low = from.low,
                 .high = from.high,
                 .doc = from.doc};
    if (!values.empty()) {
      for (std::size_t v = 0; v < values.size(); ++v)
        p.words[k].push_back(from.words.empty() ? fmt::format("{}", values[v])
                                                : std::string(from.words[v].text));
      p.choices[k].assign(p.words[k].begin(), p.words[k].end());
      to.fallback = from.words.empty() ? from.fallback - from.low : 0;
      to.low = 0;
      to.high = static_cast<double>(values.size() - 1);
      to.choices = p.choices[k];
    }
    p.params.push_back(to);
  }
  if (!p.file.pairs) return;
  p.params.push_back(sparse::kValuesParam);
  p.params.push_back(sparse::kIndicesParam);
}

}  // namespace

LoadedProgram::~LoadedProgram() { give_back_slot(*this); }

std::size_t LoadedProgram::index_of(const Settings& settings) const {
  std::size_t at = 0;
  for (std::size_t k = 0; k < counts.size(); ++k)
    if (counts[k] != 0) at = at * counts[k] + static_cast<std::size_t>(settings[k]);
  return at;
}

Result<Source> read_source(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none))
    return Status(Code::kInvalid, fmt::format("{}: there is no such file", printable(path, kMostShown)));
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(Code::kIo, fmt::format("{}: cannot be opened", path));
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Status(Code::kIo, fmt::format("{}: cannot be read", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes)
    return Status(Code::kInvalid,
                  fmt::format("{}: more than {} bytes are no codec program", path, kMostBytes));
  return Source{.name = path, .text = std::move(text)};
}

std::size_t code_lines(const Source& source) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < source.text.size();) {
    const std::size_t end = std::min(source.text.find('\n', at), source.text.size());
    const std::size_t first = source.text.find_first_not_of(" \t\r", at);
    if (first < end && source.text[first] != '#') ++count;
    at = end + 1;
  }
  return count;
}

// Of pairs whose values are rounded less is sent than the author knows of.
double LoadedProgram::contraction_of(const Settings& settings, std::size_t n) const {
  if (contractions.empty()) return std::numeric_limits<double>::infinity();
  const Combination& claim = contractions[index_of(settings)];
  const double claimed = plan_value(claim.program, claim.schedule, claim.program.result, settings, n);
  if (!file.pairs) return claimed;
  const sparse::Form form = sparse::form_of(settings, file.params.size());
  return 1 - (1 - claimed) * sparse::kKeptEnergy[static_cast<std::size_t>(form.values)];
}

std::unique_ptr<LoadedProgram> compile(Source source, Problems& problems) {
  auto p = std::make_unique<LoadedProgram>();
  p->source = std::move(source);
  p->file = parse(p->source, problems);
  if (problems.any()) return nullptr;
  std::vector<Checked> checked = check(p->file, problems);
  if (problems.any()) return nullptr;
  fill_params(*p);
  if (p->params.size() > kMaxParams) {
    problems.add(p->file.pairs->at,
                 fmt::format("a codec has at most {} parameters, two of them for its pairs", kMaxParams));
    return nullptr;
  }
  const SlotFunctions* seam = take_slot(*p);
  if (seam == nullptr) {
    problems.add(p->file.name.at, fmt::format("{} programs are loaded already, and no more can be", kSlots));
    return nullptr;
  }
  const bool looks = !Schedule(checked[0]).looked.reduce.empty();
  const bool one_pass = !looks && (checked[0].passes == 0 || checked[0].block != 0);
  const bool pairs = p->file.pairs.has_value();
  if (const Claim* c = claim_of(p->file, "contraction"))
    for (const Checked& of : checked) p->contractions.emplace_back(check_claim(p->file, *c, of, problems), 0);
  for (Checked& c : checked) p->combinations.emplace_back(std::move(c), p->file.params.size());
  const bool varies = std::any_of(p->combinations.begin(), p->combinations.end(),
                                  [](const Combination& of) { return of.program.varies(); });
  const std::uint64_t hash = XXH3_64bits(p->source.text.data(), p->source.text.size());
  p->name = fmt::format("{}@{:012x}", p->file.name.text, hash >> 16);
  p->doc = std::string(p->file.doc);
  p->laws.assign(std::begin(kDecodeLaw), std::end(kDecodeLaw));
  if (pairs) p->laws.assign(std::begin(sparse::kLaws), std::end(sparse::kLaws));
  p->phase = {.name = "values", .laws = p->laws, .bound = seam->bound};
  p->impls = {{.name = "compiled",
               .usable = codec::with_simd,
               .encode = seam->encode_compiled,
               .decode = seam->decode_compiled,
               .check = seam->check_compiled},
              codec::reference({.encode = seam->encode, .decode = seam->decode, .check = seam->check})};
  if (pairs) {
    p->impls[0].clear_sent = sparse::clear_sent_simd;
    p->impls[1].clear_sent = sparse::clear_sent_ref;
  }
  p->codec = {.name = p->name,
              .doc = p->doc,
              .params = p->params,
              .phases = std::span(&p->phase, 1),
              .traits = {.exact_ledger = pairs || claim_of(p->file, "exact") != nullptr,
                         .fixed_size = !pairs && !varies,
                         .selects = pairs,
                         .unbiased = claim_of(p->file, "unbiased") != nullptr,
                         .one_pass_feedback = one_pass,
                         .contraction = seam->contraction},
              .scratch = seam->scratch,
              .impls = p->impls};
  return p;
}

bool is_file(std::string_view codec) {
  return codec.find('/') != std::string_view::npos || codec.ends_with(kEnding);
}

Result<const LoadedProgram*> load(const std::string& path) {
  Result<Source> found = read_source(path);
  if (!found.ok()) return found.status();
  const Source& source = *found;
  const std::lock_guard lock(loaded.one_at_a_time);
  for (const LoadedProgram* known : loaded.all)
    if (known->source.text == source.text) return known;
  Problems problems;
  std::unique_ptr<LoadedProgram> made = compile(source, problems);
  if (made == nullptr) return Status(Code::kInvalid, "codec program:\n" + problems.text(source));
  const std::uint64_t hash = XXH3_64bits(source.text.data(), source.text.size());
  const auto id = CodecId{static_cast<std::uint16_t>(kFirstLoadedId + hash % (0x10000 - kFirstLoadedId))};
  if (const Codec* other = find_codec(id))
    return Status(
        Code::kUnsupported,
        fmt::format("{}: its id is that of {} by chance: change a word of its doc", path, other->name));
  const LoadedProgram* stays = made.release();
  loaded.all.push_back(stays);
  add_loaded_codec(stays->codec, id);
  return stays;
}

const LoadedProgram* program_of(const Codec& codec) {
  const std::lock_guard lock(loaded.one_at_a_time);
  for (const LoadedProgram* known : loaded.all)
    if (&known->codec == &codec) return known;
  return nullptr;
}

}  // namespace tithe::lang
