// SPDX-License-Identifier: Apache-2.0
// A loaded program has one chain of phases for each combination of its integer and word parameters. index_of() numbers
// the combinations in mixed radix, the first parameter slowest, as check() lists them. In the Codec, integer parameters
// are word parameters, so Settings hold the index of a value. Each claim is compiled for each combination too.
#include "lang/loader.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "base/text.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/sparsifier.h"
#include "lang/front/checker.h"
#include "lang/front/merge_nodes.h"
#include "lang/front/parse.h"
#include "lang/front/phases.h"
#include "lang/seam.h"

namespace tithe::lang {

namespace {

constexpr std::string_view kRatio = "ratio";  // the parameter that schedules change
constexpr std::size_t kMaxShown = 200;        // of a path in a message, in bytes

const Claim* claim_of(const File& file, std::string_view name) {
  for (const Claim& c : file.claims)
    if (c.name.text == name) return &c;
  return nullptr;
}

bool sums(const PhaseText& phase) { return !phase.send.empty() && phase.send[0].ints; }

// Integer parameters become word parameters, because a program is checked per value. Adds the parameters of the form
// of pairs, or the maximum number of ranks in a sum.
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
                 .doc = from.doc,
                 .role = from.name.text == kRatio ? Role::kRatio : Role::kOwn};
    if (!values.empty()) {
      for (std::size_t v = 0; v < values.size(); ++v)
        p.words[k].push_back(from.words.empty() ? fmt::format("{}", values[v])
                                                : std::string(from.words[v].text));
      p.choices[k].assign(p.words[k].begin(), p.words[k].end());
      to.fallback = from.words.empty() ? from.fallback - from.low : from.fallback;
      to.low = 0;
      to.high = static_cast<double>(values.size() - 1);
      to.choices = p.choices[k];
    }
    p.params.push_back(to);
  }
  const auto add = [&](const ParamSpec& spec) { p.params.push_back(spec); };
  const PhaseText& first = p.file.phases[0];
  if (first.pairs) {
    add(first.pairs->indices ? sparse::kFixedValuesParam : sparse::kValuesParam);
    add(sparse::kIndicesParam);
  } else if (std::any_of(p.file.phases.begin(), p.file.phases.end(), sums)) {
    add(int_fields::kWorkers);
  }
}

// The phases of a combination as a list: each phase owns the previous one.
Combination chained(std::vector<Checked> phases, std::size_t form) {
  std::unique_ptr<Combination> before;
  for (std::size_t k = 0; k + 1 < phases.size(); ++k) {
    auto next = std::make_unique<Combination>(with_merged_nodes(std::move(phases[k])), form);
    next->before = std::exchange(before, nullptr);
    before = std::move(next);
  }
  Combination last(with_merged_nodes(std::move(phases.back())), form);
  last.before = std::move(before);
  return last;
}

void fill_phases(LoadedProgram& p) {
  for (std::size_t k = 0; k < p.file.phases.size(); ++k) {
    const PhaseText& phase = p.file.phases[k];
    if (phase.pairs && !phase.pairs->indices)
      p.laws.emplace_back(std::begin(sparse::kLaws), std::end(sparse::kLaws));
    else
      p.laws.push_back({law_of(p.file, k)});
  }
  for (std::size_t k = 0; k < p.file.phases.size(); ++k) {
    const PhaseText& phase = p.file.phases[k];
    p.phases.push_back({.name = phase.named() ? phase.name.text
                                : phase.pairs ? "pairs"
                                              : "values",
                        .laws = p.laws[k],
                        .bound = seam::kBounds[k]});
  }
}

}  // namespace

const Combination& LoadedProgram::of(const Settings& settings, std::size_t phase) const {
  const Combination* found = &of(settings);
  for (std::size_t k = phases.size(); k > phase + 1; --k) found = found->before.get();
  return *found;
}

std::size_t LoadedProgram::index_of(const Settings& settings) const {
  std::size_t at = 0;
  for (std::size_t k = 0; k < counts.size(); ++k)
    if (counts[k] != 0) at = at * counts[k] + static_cast<std::size_t>(settings[k]);
  return at;
}

Result<Source> read_source(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none))
    return Status(Code::kInvalid, fmt::format("{}: the file does not exist", printable(path, kMaxShown)));
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(Code::kIo, fmt::format("{}: cannot be opened", path));
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Status(Code::kIo, fmt::format("{}: cannot be read", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxBytes)
    return Status(Code::kInvalid, fmt::format("{}: a codec program has at most {} bytes", path, kMaxBytes));
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

namespace {

bool holds(const LoadedProgram::Claimed& claim, std::size_t at, const Settings& settings, std::size_t n) {
  return claim.made && (claim.where.empty() || plan_truth(claim.where[at], settings, n));
}

LoadedProgram::Claimed claimed(const File& file, std::string_view name,
                               const std::vector<std::vector<Checked>>& checked, Problems& problems) {
  LoadedProgram::Claimed claim;
  const Claim* const from = claim_of(file, name);
  claim.made = from != nullptr;
  for (const std::vector<Checked>& of : checked) {
    if (claim.made && from->value)
      claim.value.emplace_back(check_claim(file, *from, false, of[0], problems), 0);
    if (claim.made && from->where)
      claim.where.emplace_back(check_claim(file, *from, true, of[0], problems), 0);
  }
  return claim;
}

}  // namespace

bool LoadedProgram::sends_constants(const Settings& settings) const {
  return holds(constants, index_of(settings), settings, 0);
}

// A claim describes values that are sent unrounded, so there is no bound if the form of the pairs rounds them.
double LoadedProgram::error_of(const Settings& settings, double value, double largest) const {
  const std::size_t at = index_of(settings);
  const bool rounds =
      file.phases[0].pairs && sparse::form_of(settings, file.params.size()).values != sparse::ValueForm::kF32;
  if (rounds || !holds(error, at, settings, 0)) return std::numeric_limits<double>::infinity();
  return plan_value(error.value[at], settings, 0, {value, largest});
}

// The author's claim covers the selection of values only. If the pairs' form also rounds them, a share of the kept
// energy is lost: 1 - (1 - claimed) * kKeptEnergy.
double LoadedProgram::contraction_of(const Settings& settings, std::size_t n) const {
  const std::size_t at = index_of(settings);
  if (!holds(contraction, at, settings, n)) return std::numeric_limits<double>::infinity();
  const double claimed = plan_value(contraction.value[at], settings, n);
  if (!file.phases[0].pairs) return claimed;
  const sparse::Form form = sparse::form_of(settings, file.params.size());
  return 1 - (1 - claimed) * sparse::kKeptEnergy[static_cast<std::size_t>(form.values)];
}

// Parse, check all combinations, then derive the codec's traits, phases and impls from the checked program.
std::unique_ptr<LoadedProgram> compile(Source source, Problems& problems, std::string_view name) {
  auto p = std::make_unique<LoadedProgram>();
  p->source = std::move(source);
  p->file = parse(p->source, problems);
  if (problems.any()) return nullptr;
  std::vector<std::vector<Checked>> checked = check(p->file, problems);
  if (problems.any()) return nullptr;
  fill_params(*p);
  if (p->params.size() > kMaxParams) {
    problems.add(p->file.params.back().name.at,
                 fmt::format("too many parameters: a codec has at most {}, of which the language adds {}",
                             kMaxParams, p->params.size() - p->file.params.size()));
    return nullptr;
  }
  const Checked& first = checked[0][0];
  const bool looks = !Schedule(first).looked.reduce.empty();
  const bool one_pass = p->file.phases.size() == 1 && !looks && (first.passes == 0 || first.block != 0);
  const bool lists = first.sends_pairs, pairs = lists && !first.sends_indices;
  const bool adds = checked[0].back().adds();
  p->contraction = claimed(p->file, "contraction", checked, problems);
  p->error = claimed(p->file, "error", checked, problems);
  p->constants = claimed(p->file, "constants", checked, problems);
  const bool varies = std::any_of(checked.begin(), checked.end(), [](const std::vector<Checked>& phases) {
    return std::any_of(phases.begin(), phases.end(),
                       [](const Checked& of) { return of.varies() || of.adds() || of.sends_pairs; });
  });
  for (std::vector<Checked>& phases : checked)
    p->combinations.push_back(chained(std::move(phases), p->file.params.size()));
  p->hash = XXH3_64bits(p->source.text.data(), p->source.text.size());
  p->name = name.empty() ? fmt::format("{}@{:012x}", p->file.name.text, p->hash >> 16) : std::string(name);
  p->doc = std::string(p->file.doc);
  fill_phases(*p);
  const bool combines = std::ranges::any_of(p->phases, &Phase::combines);
  p->impls = seam::impls(combines, pairs);
  p->codec = {.name = p->name,
              .doc = p->doc,
              .params = p->params,
              .phases = p->phases,
              .traits = {.exact_ledger = lists || claim_of(p->file, "exact") != nullptr,
                         .fixed_size = !varies,
                         .selects = pairs,
                         .unbiased = claim_of(p->file, "unbiased") != nullptr,
                         .one_pass_feedback = one_pass,
                         .adds_transformed = adds,
                         .contraction = p->contraction.made ? seam::contraction : nullptr,
                         .error = p->error.made ? seam::error : nullptr,
                         .exact_constants = p->constants.made ? seam::sends_constants : nullptr},
              .scratch = seam::scratch,
              .impls = p->impls,
              .program = p.get()};
  return p;
}

}  // namespace tithe::lang
