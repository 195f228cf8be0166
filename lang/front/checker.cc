// SPDX-License-Identifier: Apache-2.0
// A program is checked once for each combination of its integer and word parameters, so these are constants in all
// ranges. A phase is translated in the order of its text: a name is bound after the nodes of its expression, so the
// list of nodes is in topological order. Invariant: a phase without problems is total (checked.h).
#include "lang/front/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "lang/front/passes.h"
#include "lang/front/phases.h"
#include "lang/front/sending.h"
#include "tithe/seam/codec.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kMaxCombinations = 256;

// Checks one phase of one combination.
class Checker : Sending {
 public:
  using Sending::Sending;

  // `earlier` is the previous phase, or nullptr.
  Checked run(const Checked* earlier) {
    program().law = law_of(file_, phase_);
    program().counts = program().law == Law::kMax && law_of(file_, phase_ + 1) == Law::kSum;
    plan();
    block();
    if (earlier != nullptr) before(*earlier);
    for (const Let& l : here().encode) let(l, Part::kEncode);
    if (here().pairs)
      add_pairs(*here().pairs);
    else if (here().values)
      values(earlier);
    else
      send();
    if (problems_.any()) return std::move(program());
    const bool last = phase_ + 1 == file_.phases.size();
    for (const Binding& b : names_)
      if (b.part == Part::kBefore && !b.used)
        problems_.add(
            b.name.at,
            fmt::format("'{}' is sent, but the phase '{}' does not use it", b.name.text, here().name.text),
            "remove it");
      else if ((last || b.part != Part::kDecode) && !b.used && !b.known && !b.shapes && !b.value.bad() &&
               b.part != Part::kPlan)
        problems_.add(b.name.at, fmt::format("'{}' is never used", b.name.text), "remove it");
    for (const Node& n : program().nodes) program().passes = std::max(program().passes, n.pass);
    return std::move(program());
  }

  Checked run_claim(const Claim& claim, bool where) {
    plan();
    if (claim.name.text == "error" && !where) {
      constexpr double kMaxFloat = std::numeric_limits<float>::max();
      for (const unsigned k : {0U, 1U})
        names_.push_back({.name = {k == 0 ? "x" : "largest", claim.name.at},
                          .value = build_.input({.op = Op::kArgument,
                                                 .type = Type::kF64,
                                                 .index = k,
                                                 .range = {k == 0 ? -kMaxFloat : 0, kMaxFloat}},
                                                claim.name.at)});
    }
    const Value v = build_.as(expr(where ? *claim.where : *claim.value, Part::kPlan),
                              where ? Type::kBool : Type::kF64, "the claimed bound");
    program().result = v.node;
    return std::move(program());
  }

 private:
  void plan() {
    for (std::size_t k = 0; k < file_.params.size(); ++k) {
      const Param& p = file_.params[k];
      const double value = program().params[k];
      Node node{.op = Op::kConst, .type = Type::kI32, .number = value, .range = {value, value}};
      if (!p.whole)
        node = {.op = Op::kParam,
                .type = Type::kF64,
                .index = static_cast<unsigned>(k),
                .range = {p.low, p.high}};
      bind(p.name, build_.input(node, p.name.at), Part::kPlan);
    }
    for (const Let& l : file_.plan) let(l, Part::kPlan);
  }

  void block() {
    if (!file_.block) return;
    const Value v = build_.as(expr(*file_.block, Part::kPlan), Type::kI32, "the length of a block");
    if (v.bad()) return;
    const Range r = build_.of(v).range;
    if (!r.constant() || r.low < 1 || r.high > kMaxBlock)
      build_.bad(file_.block->at,
                 fmt::format("the length of a block must be a constant, 1 .. {}", kMaxBlock));
    else
      program().block = static_cast<std::size_t>(r.low);
    program().block_of_params = file_.block->kind != ExprKind::kNumber;
  }

  // Binds the items of the previous phase, except those that the receiver can compute.
  void before(const Checked& earlier) {
    for (std::size_t k = 0; k < earlier.items.size(); ++k) {
      const Item& from = earlier.items[k];
      program().before.push_back(from);
      Item& it = program().before.back();
      it.value = it.where = it.width = it.input = kNone;
      if (from.input == kNone) continue;
      Node node = earlier.node(from.input);
      node.op = Op::kBefore;
      node.decode = false;
      node.before = true;
      node.index = static_cast<unsigned>(k);
      Value seen = build_.input(node, from.at);
      it.input = seen.node;
      if (from.coding == Coding::kInts)
        seen = sum_of(from, seen, {.op = Op::kAdded, .stage = Stage::kAll, .before = true, .index = 1});
      bind({file_.phases[phase_ - 1].send[k].name}, seen, Part::kBefore);
    }
  }

  // ---- The items of `send`

  void values(const Checked* earlier) {
    program().sends_values = true;
    if (program().law != Law::kSum || earlier == nullptr || !earlier->sends_indices)
      problems_.add(*here().values, "'values' requires indices from the previous phase",
                    "phase indices by leader, and its send: indices where ... at most ...");
  }

  void send() {
    for (const SendItem& s : here().send) add_item(s);
    check_lengths();
    for (std::size_t k = 0; k < here().send.size() && k < program().items.size(); ++k)
      if (here().send[k].where) add_condition(k, here().send[k].where);
    if (!here().result) return;
    const std::size_t before = names_.size();
    for (Binding& b : names_) b.used = b.part == Part::kDecode ? false : b.used;
    for (const Let& l : here().decode) let(l, Part::kDecode);
    const Value v = build_.as(expr(*here().result, Part::kDecode), Type::kF32, "the decoded value");
    program().result = v.node;
    if (problems_.any()) return;
    if (program().adds() && !is_multiple(program(), v.node))
      build_.bad(here().result->at,
                 "this is not a multiple of the summed item: decoding a sum must equal the sum of the "
                 "decoded values of the ranks",
                 fmt::format("f32({}) * ...", program().items[0].name));
    for (std::size_t k = 0; k < before; ++k)
      if (names_[k].part == Part::kDecode && !names_[k].used && !names_[k].known && !names_[k].shapes &&
          !names_[k].value.bad()) {
        problems_.add(names_[k].name.at,
                      fmt::format("'{}' is sent, but decode does not use it", names_[k].name.text),
                      "remove it");
        names_[k].used = true;
      }
    if (!problems_.any()) omit_item(here().send);
  }
};

bool all_numbers(const std::vector<Name>& words) {
  return std::all_of(words.begin(), words.end(),
                     [](const Name& w) { return w.text[0] >= '0' && w.text[0] <= '9'; });
}

// The number of elements of values_of(), without creating them: an invalid range may be huge.
double count_of(const Param& p) {
  return !p.words.empty() ? static_cast<double>(p.words.size()) : std::max(0.0, p.high - p.low + 1);
}

void check_param(const Param& p, Problems& problems) {
  if (p.words.empty()) {
    if (!(p.low <= p.fallback && p.fallback <= p.high))
      problems.add(p.name.at, fmt::format("'{}' has the default {}, which must be in {}", p.name.text,
                                          p.fallback, text({p.low, p.high})));
    const bool whole =
        p.low == std::floor(p.low) && p.high == std::floor(p.high) && p.fallback == std::floor(p.fallback);
    if (p.whole && !whole)
      problems.add(p.name.at,
                   fmt::format("'{}' is an int: its default and limits must be whole numbers", p.name.text),
                   "param NAME: int = 4 in 2 .. 8; or real");
    else if (p.whole && count_of(p) > kMaxCombinations)
      problems.add(
          p.name.at,
          fmt::format(
              "'{}' has {} values; at most {} are allowed, because the program is checked for each value",
              p.name.text, count_of(p), kMaxCombinations),
          "use a smaller range, or real: the value of a real is known only to the plan");
  }
  for (std::size_t k = 0; k < p.words.size(); ++k)
    for (std::size_t j = 0; j < k; ++j)
      if (p.words[j].text == p.words[k].text)
        problems.add(p.words[k].at, fmt::format("'{}' occurs twice", p.words[k].text));
}

}  // namespace

std::vector<double> values_of(const Param& param) {
  std::vector<double> all;
  if (!param.whole) return all;
  if (param.words.empty())
    for (double v = param.low; v <= param.high; ++v) all.push_back(v);
  const bool numbers = all_numbers(param.words);
  for (std::size_t k = 0; k < param.words.size(); ++k) {
    double v = static_cast<double>(k);
    if (numbers)
      std::from_chars(param.words[k].text.data(), param.words[k].text.data() + param.words[k].text.size(), v);
    all.push_back(v);
  }
  return all;
}

// Checks the parameters first, since their values determine the number of combinations, then each phase of each
// combination, then the claims. Stops at the first combination with problems.
std::vector<std::vector<Checked>> check(const File& file, Problems& problems) {
  check_phases(file, problems);
  if (file.params.size() > kMaxParams)
    problems.add(file.params[kMaxParams].name.at,
                 fmt::format("too many parameters: a codec has at most {}", kMaxParams));
  double combinations = 1;
  for (const Param& p : file.params) {
    check_param(p, problems);
    if (p.whole) combinations *= count_of(p);
  }
  if (!problems.any() && combinations > kMaxCombinations)
    problems.add(file.name.at,
                 fmt::format("its int and word parameters have {} combinations; at most {} are allowed",
                             combinations, kMaxCombinations));
  std::vector<std::vector<Checked>> all;
  if (problems.any()) return all;
  for (std::size_t c = 0; c < static_cast<std::size_t>(combinations); ++c) {
    std::size_t rest = c;
    std::vector<double> params(file.params.size());
    for (std::size_t k = file.params.size(); k-- > 0;) {
      const std::vector<double> values = values_of(file.params[k]);
      params[k] = values.empty() ? file.params[k].fallback : values[rest % values.size()];
      if (!values.empty()) rest /= values.size();
    }
    std::vector<Checked>& phases = all.emplace_back();
    for (std::size_t p = 0; p < file.phases.size(); ++p) {
      phases.push_back(Checker(file, p, params, problems).run(p == 0 ? nullptr : &phases[p - 1]));
      if (problems.any()) return {};
    }
  }
  constexpr std::string_view kTested[] = {"unbiased", "exact", "constants", "contraction", "error"};
  for (const Claim& claim : file.claims) {
    if (std::find(std::begin(kTested), std::end(kTested), claim.name.text) == std::end(kTested))
      problems.add(claim.name.at, fmt::format("unknown claim '{}'", claim.name.text),
                   "claim unbiased, exact, constants, or contraction or error and a bound");
    for (std::size_t c = 0; c < all.size(); ++c) {
      if (claim.value && !problems.any()) check_claim(file, claim, false, all[c][0], problems);
      if (claim.where && !problems.any()) check_claim(file, claim, true, all[c][0], problems);
    }
  }
  return all;
}

Checked check_claim(const File& file, const Claim& claim, bool where, const Checked& of, Problems& problems) {
  return Checker(file, 0, of.params, problems).run_claim(claim, where);
}

}  // namespace tithe::lang
