// SPDX-License-Identifier: Apache-2.0
// Reductions of a pass: their accumulators in the loop, and the result behind it.
#include <algorithm>

#include "lang/text/emit_passes.h"

namespace tithe::lang {

// The maximum of values that are never negative, NaN or -0 does not need the position of its first occurrence.
bool PassText::plain_largest(int k) const {
  if (node(k).op != Op::kLargest) return false;
  const Node& of = node(node(k).in[0]);
  return of.type == Type::kU32 || (of.op == Op::kAbs && node(of.in[0]).op == Op::kTaken);
}

// True for the largest input magnitude, which the first pass of a block computes anyway.
bool PassText::is_peak(int k) const {
  const Node& n = node(k);
  if (!first_of_block_ || n.op != Op::kLargest || n.in[1] != kNone) return false;
  const Node& of = node(n.in[0]);
  if (of.op == Op::kAbs) return node(of.in[0]).op == Op::kTaken;
  constexpr double kSize = 0x7fffffff;
  return of.op == Op::kBitAnd && of.type == Type::kU32 && node(of.in[0]).op == Op::kBits &&
         node(node(of.in[0]).in[0]).op == Op::kTaken && node(of.in[1]).op == Op::kConst &&
         node(of.in[1]).number == kSize;
}

bool PassText::reaches_peak(int k) const {
  const Node& n = node(k);
  if (n.op == Op::kMax) return reaches_peak(n.in[0]) || reaches_peak(n.in[1]);
  return n.op == Op::kLargest && n.in[1] == kNone && plain_largest(k) && n.type == Type::kF32;
}

std::pair<int, bool> PassText::condition(int k) const {
  bool negated = false;
  for (; node(k).op == Op::kLogicNot; k = node(k).in[0]) negated = !negated;
  return {k, negated};
}

// Sums that together include every input value, unchanged or as magnitude: if these sums are finite, so are all
// values. Empty if there are no such sums.
Nodes PassText::sums_of_all(const Pass& of) const {
  if (in_pieces()) return {};
  const auto of_selected = [&](int k) {
    const Node& from = node(node(k).in[0]);
    return is_sum(k) && from.type == Type::kF32 &&
           (from.op == Op::kTaken || (from.op == Op::kAbs && node(from.in[0]).op == Op::kTaken));
  };
  for (const int a : of.reduce) {
    if (!of_selected(a)) continue;
    if (node(a).in[1] == kNone) return {a};
    for (const int b : of.reduce)
      if (of_selected(b) && node(b).in[1] != kNone &&
          condition(node(a).in[1]) ==
              std::pair(condition(node(b).in[1]).first, !condition(node(b).in[1]).second))
        return {a, b};
  }
  return {};
}

// True for the largest or smallest input value; all inputs are finite.
bool PassText::end_of_selected(int k) const {
  const Node& n = node(k);
  return (n.op == Op::kLargest || n.op == Op::kSmallest) && n.in[1] == kNone &&
         node(n.in[0]).op == Op::kTaken;
}

// True for a quotient of each value and one common divisor, both 0 or within 2^-400 .. 2^400, as divided() in
// prelude_numbers.h requires.
bool PassText::by_one(int k) const {
  const Node& n = node(k);
  if (!of_sixteen_ || (n.op != Op::kDiv && n.op != Op::kDivide) || n.type != Type::kF64 ||
      n.stage != Stage::kValue)
    return false;
  const Range of = node(n.in[0]).range;
  return node(n.in[1]).stage != Stage::kValue && std::max(-of.low, of.high) <= 0x1p400 &&
         text_.min_unit(n.in[0]) >= -400;
}

bool PassText::in_pieces() const { return program_.block == 0 || program_.block > kPiece; }

// Declares the accumulator of a reduction: s<k>, and for sums the sixteen running values l<k>.
void PassText::accumulator(int k) {
  const Node& n = node(k);
  const std::string values = text_.value_type(n.in[0]), number = text_.number_type(n.in[0]);
  if (is_table(n.op)) return table(k);
  switch (n.op) {
    case Op::kSum:
    case Op::kMean:
      line("auto s{} = {}<{}, {}>::make();", k, in_pieces() ? "Pieces" : "Piece", values, number);
      line("{} l{} = splat({}(0));", values, k, number);
      if (n.op != Op::kMean || n.in[1] == kNone) return;
      if (const int of = condition(n.in[1]).first;
          std::find(counted_.begin(), counted_.end(), of) == counted_.end()) {
        counted_.push_back(of);
        line("U n{} = splat(0U);", of);
      }
      return;
    case Op::kLargest:
    case Op::kSmallest:
      if (is_peak(k)) return;
      if (plain_largest(k)) return line("{} s{} = splat({}(0));", values, k, number);
      if (end_of_selected(k))
        return line("F s{} = splat({}__builtin_inff());", k, n.op == Op::kLargest ? "-" : "");
      return line("auto s{} = Best<{}, {}, {}>::make();", k, values, number, n.op == Op::kLargest);
    case Op::kReduce:
      function_of(k, " __attribute__((always_inline))");
      line("{} l{} = splat({});", values, k, text_.number(n.in[2]));
      return line("auto s{0} = PiecesBy<{1}, {2}>::make(l{0});", k, values, number);
    case Op::kCount:
      return line("U s{} = splat(0U);", k);
    default:
      return line("M s{} = splat(false);", k);
  }
}

// Updates the accumulator with sixteen values; values that do not count are replaced by a neutral element.
void PassText::accumulate(int k) {
  const Node& n = node(k);
  const std::string of = text_.values(n.in[0]), number = text_.number_type(n.in[0]);
  const std::string which = n.in[1] == kNone ? "here" : fmt::format("and_(here, {})", text_.values(n.in[1]));
  if (is_table(n.op)) return add_to_table(k, of, which);
  switch (n.op) {
    case Op::kSum:
    case Op::kMean:
      if (const auto [when, negated] = n.in[1] == kNone ? std::pair(kNone, false) : condition(n.in[1]);
          negated)
        return line("l{0} = add(l{0}, select(here, select({1}, splat({3}(0)), {2}), splat({3}(0))));", k,
                    text_.values(when), of, number);
      return line("l{0} = add(l{0}, select({1}, {2}, splat({3}(0))));", k, which, of, number);
    case Op::kLargest:
    case Op::kSmallest:
      if (is_peak(k)) return;
      if (plain_largest(k))
        return line("s{0} = max_(s{0}, select({1}, {2}, splat({3}(0))));", k, which, of, number);
      if (end_of_selected(k))
        return line("s{0} = {1}(s{0}, select(here, {2}, splat({3}__builtin_inff())));", k,
                    n.op == Op::kLargest ? "max_" : "min_", of, n.op == Op::kLargest ? "-" : "");
      return line("s{}.look({}, {}, uint32_t(i));", k, of, which);
    case Op::kReduce:
      return line("l{0} = select({1}, f{0}(l{0}, {2}), l{0});", k, which, of);
    case Op::kCount:
      return line("s{0} = count_up(s{0}, and_({1}, {2}));", k, which, of);
    case Op::kAny:
      return line("s{0} = or_(s{0}, and_({1}, {2}));", k, which, of);
    default:
      return line("s{0} = or_(s{0}, and_({1}, not_({2})));", k, which, of);
  }
}

// Declares the result b<k> behind the loop.
void PassText::finish(int k) {
  const Node& n = node(k);
  known(k);
  const std::string type = text_.number_type(k);
  if (is_table(n.op)) return finish_table(k);
  switch (n.op) {
    case Op::kSum:
    case Op::kMean: {
      const bool wide = n.type == Type::kF64;
      const std::string total =
          fmt::format("s{}.total({})", k, wide ? "0x1.fffffffffffffp1023" : "0x1.fffffep127f");
      if (n.op == Op::kSum) return line("const {} b{} = {};", type, k, total);
      std::string count = "len";
      if (n.in[1] != kNone) {
        const auto [when, negated] = condition(n.in[1]);
        count = fmt::format("{}lanes_sum(n{})", negated ? "len - " : "", when);
      }
      line("const uint64_t c{} = {};", k, count);
      return line("const {0} b{1} = c{1} == 0 ? {0}(0) : {2} / {0}(c{1});", type, k, total);
    }
    case Op::kLargest:
    case Op::kSmallest:
      if (end_of_selected(k))
        return line("const float b{0} = end_of<kResidual>(s{0}, {1}(), g, r, len);", k,
                    n.op == Op::kLargest ? "Maximum" : "Minimum");
      if (is_peak(k))
        return line("const {} b{} = {}max_lanes(peak){};", type, k, n.type == Type::kF32 ? "float_(" : "",
                    n.type == Type::kF32 ? ")" : "");
      if (!plain_largest(k)) return line("const {0} b{1} = s{1}.found();", type, k);
      return line("const {} b{} = {}(s{});", type, k, n.type == Type::kU32 ? "max_lanes" : "largest_lane", k);
    case Op::kReduce:
      return line("const {0} b{1} = s{1}.total(f{1});", type, k);
    case Op::kCount:
      return line("const uint32_t b{0} = lanes_sum(s{0});", k);
    case Op::kAny:
      return line("const bool b{0} = any_of(s{0});", k);
    default:
      return line("const bool b{0} = !any_of(s{0});", k);
  }
}

// A pass is one loop; the first pass of a block also checks that all values are finite. If a sum includes all values,
// its finiteness proves that, so no maximum is needed.
void PassText::pass(const Pass& of, bool first) {
  define_all(of.block);
  counted_.clear();
  first_of_block_ = first;
  const bool needs_peak = std::any_of(of.reduce.begin(), of.reduce.end(), [&](int k) { return is_peak(k); });
  const Nodes tell = first && !needs_peak ? sums_of_all(of) : Nodes{};
  if (first) found_peak_ = tell.empty();
  for (const int k : of.reduce) accumulator(k);
  const bool pieces =
      in_pieces() && std::any_of(of.reduce.begin(), of.reduce.end(), [&](int k) { return in_shape(k); });
  if (!tell.empty()) line("bool sound = true;");
  open("");
  before_loop(of.value);
  open_body();
  line("const F x = take<kResidual>(tail, g, r, i, count);");
  if (first && tell.empty()) line("peak = max_(peak, size_bits(x));");
  line("const auto here = valid(tail, count);");
  define_all(of.value);
  for (const int k : of.reduce) accumulate(k);
  for (const int k : counted_) line("n{0} = count_up(n{0}, and_(here, {1}));", k, text_.values(k));
  close_body();
  if (pieces) {
    open(fmt::format("for (size_t piece = 0; piece < len; piece += {})", kPiece));
    line("const size_t end = len - piece < {0} ? len : piece + {0};", kPiece);
    run_body("piece", "end");
  } else {
    run_body("0", "len");
  }
  if (!tell.empty()) {  // an overflow does not mean that a value is not finite
    std::string all;
    for (const int k : tell) all += fmt::format("{}all_finite(size_bits(l{}))", all.empty() ? "" : " && ", k);
    line("sound = ({}) || are_finite<kResidual>(g, r, len);", all);
  }
  for (const int k : of.reduce)
    if (node(k).op == Op::kReduce) {
      line("s{0}.end(l{0}, f{0});", k);
      line("l{} = splat({});", k, text_.number(node(k).in[2]));
    } else if (is_sum(k)) {
      line("s{0}.end(l{0});", k);
      line("l{} = splat({}(0));", k, text_.number_type(node(k).in[0]));
    }
  if (pieces) close();
  close();
  if (first) {
    open(tell.empty() ? "if (!all_finite(peak))" : "if (!sound)");
    line("finite = false;");
    line("send_nothing(g, r, l, len, block, size_t(next - block));");
    line("block = next;");
    line("continue;");
    close();
  }
  for (const int k : of.reduce) finish(k);
}

}  // namespace tithe::lang
