// SPDX-License-Identifier: Apache-2.0
#include "lang/text/emit_floors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tithe::lang {

namespace {

constexpr double kWholeFloat = 0x1p24;  // every integer up to here is exact in a float

// A float expression that approximates a double of each value.
struct Near {
  std::string text;
  int units = 0;  // error bound in units of 2^-24; 0: exact
  double most = 0;
};

class Finder {
 public:
  Finder(const Checked& program, const NodeText& text, int root) : program_(program), text_(text) {
    found_.root = root;
  }

  bool run() {
    const Node& n = node(found_.root);
    if (!is_whole(n.type) || n.op != Op::kConvert || n.stage != Stage::kValue) return false;
    if (node(n.in[0]).type != Type::kF64 || !whole_of(n.in[0]) || !hold(n.range)) return false;
    constexpr double kHalf = 0.5, kMaxOff = 0.25;
    const double size = std::max(-ends_.low, ends_.high) + 1;
    // More than twice the error of a float within the ends.
    const double off = (units_ + 2) * 0x1p-23 * (size + more_);
    if (!(off < kMaxOff)) return false;
    const std::string low = constant(literal(ends_.low + kHalf)),
                      high = constant(literal(ends_.high + kHalf));
    found_.sum = fmt::format("hold_({}, {}, {})", found_.sum, low, high);
    const std::string of = fmt::format("s{}", found_.root);
    const std::string whole = "towards_zero(" + (ends_.low < 0 ? "floor_(" + of + ")" : of) + ")";
    found_.whole = n.type == Type::kU32 ? fmt::format("as_u({})", whole) : whole;
    found_.before.push_back(fmt::format("const F near{} = kept(splat({} ? {} : __builtin_inff()));",
                                        found_.root, sure_.empty() ? "true" : sure_, literal(off)));
    std::sort(found_.inside.begin(), found_.inside.end());
    std::sort(found_.leaves.begin(), found_.leaves.end());
    found_.leaves.erase(std::unique(found_.leaves.begin(), found_.leaves.end()), found_.leaves.end());
    return true;
  }
  FloorText take() { return std::move(found_); }

 private:
  const Node& node(int k) const { return program_.node(k); }
  static bool fits(Range r) { return std::max(-r.low, r.high) <= kWholeFloat; }
  static bool is_float(double v) { return static_cast<double>(static_cast<float>(v)) == v; }
  bool value(int k) const { return node(k).stage == Stage::kValue; }

  // Declares a constant in a register before the loop.
  std::string constant(const std::string& number) {
    const std::string name = fmt::format("c{}_{}", found_.root, constants_++);
    found_.before.push_back(fmt::format("const F {} = kept(splat({}));", name, number));
    return name;
  }
  void surely(const std::string& what) { sure_ += (sure_.empty() ? "" : " && ") + what; }

  // A double below the value stage, if it is exact in a float.
  std::optional<std::string> number(int k) const {
    const Node& n = node(k);
    if (n.op == Op::kConst && is_float(n.number)) return fmt::format("({:a}f)", n.number);
    if (n.op != Op::kConvert) return {};
    const Node& from = node(n.in[0]);
    if (from.type == Type::kF32) return text_.number(n.in[0]);
    if (is_whole(from.type) && fits(from.range)) return fmt::format("to_f32({})", text_.number(n.in[0]));
    return {};
  }

  std::string leaf(int k) {
    found_.leaves.push_back(k);
    return fmt::format("v{}", k);
  }

  static std::string literal(double v) { return fmt::format("({:a}f)", static_cast<float>(v)); }

  // The result is clamped to constants after the floor. The float is clamped first as well, to half a unit above each
  // end, where it is not close to an integer.
  bool hold(Range within) {
    constexpr double kMaxExact = 0x1p20;
    if (within.low > within.high || within.low != std::floor(within.low) ||
        within.high != std::floor(within.high))
      return false;
    ends_ = {std::clamp(ends_.low, within.low, within.high), std::clamp(ends_.high, within.low, within.high)};
    return std::max(-within.low, within.high) <= kMaxExact;
  }
  // The node as floor(...) followed by limits with constant ends; false if it has another form.
  bool whole_of(int k) {
    const Node& n = node(k);
    if (!value(k)) return false;
    found_.inside.push_back(k);
    const auto at = [&](std::size_t which) { return node(n.in[which]).range; };
    constexpr double kAny = 0x1p20;
    const auto constant_at = [&](std::size_t which) { return !value(n.in[which]) && at(which).constant(); };
    switch (n.op) {
      case Op::kFloor:
        return floor_of(n.in[0]);
      case Op::kMin:
      case Op::kMax: {
        const std::size_t bound = value(n.in[0]) ? 1 : 0;
        if (!constant_at(bound) || !whole_of(n.in[1 - bound])) return false;
        const double end = at(bound).low;
        return hold(n.op == Op::kMin ? Range{std::min(-kAny, end), end} : Range{end, std::max(kAny, end)});
      }
      case Op::kClamp:
        return constant_at(1) && constant_at(2) && whole_of(n.in[0]) && hold({at(1).low, at(2).high});
      default:
        return false;
    }
  }

  // The argument of floor: a double near a float, plus at most one exact summand (`more_`).
  bool floor_of(int k) {
    const Node& n = node(k);
    std::optional<Near> sum;
    if (n.op == Op::kAdd && value(k)) {
      auto a = near(n.in[0]), b = near(n.in[1]);
      if (!a || !b || std::min(a->units, b->units) != 0) return false;
      found_.inside.push_back(k);
      more_ = a->units == 0 ? a->most : b->most;
      if (more_ > kWholeFloat) return false;
      sum = Near{fmt::format("add({}, {})", a->text, b->text), std::max(a->units, b->units), 0};
    } else {
      sum = near(k);
    }
    if (!sum) return false;
    units_ = sum->units;
    found_.sum = sum->text;
    return true;
  }

  // A float approximation of a double node, with its error bound; empty if an operator has no known bound.
  std::optional<Near> near(int k) {
    const Node& n = node(k);
    if (n.type != Type::kF64) return {};
    if (!value(k)) {
      const auto as = number(k);
      if (!as) return {};
      return Near{constant(*as), 0,
                  n.op == Op::kConst ? std::fabs(n.number) : std::max(-n.range.low, n.range.high)};
    }
    found_.inside.push_back(k);
    switch (n.op) {
      case Op::kSelect:  // only if the condition is constant
        if (node(n.in[0]).op != Op::kConst) return {};
        return near(node(n.in[0]).number != 0 ? n.in[1] : n.in[2]);
      case Op::kConvert:
        return converted(n.in[0]);
      case Op::kMul:
        return scaled(n);
      case Op::kAdd:
      case Op::kSub: {
        const auto a = near(n.in[0]), b = near(n.in[1]);
        if (!a || !b || a->units + b->units != 0) return {};
        return Near{fmt::format("{}({}, {})", n.op == Op::kAdd ? "add" : "sub", a->text, b->text), 1,
                    a->most + b->most};
      }
      case Op::kDiv:
      case Op::kDivide:
        return divided(n);
      default:
        return {};
    }
  }

  std::optional<Near> converted(int k) {
    const Node& from = node(k);
    const double most = std::max(-from.range.low, from.range.high);
    if (from.type == Type::kF32 && from.op == Op::kClamp && value(from.in[0]) && !value(from.in[1]) &&
        !value(from.in[2])) {
      found_.inside.push_back(k);
      const std::string low = text_.number(from.in[1]), high = text_.number(from.in[2]);
      surely(fmt::format("{} <= {}", low, high));
      return Near{fmt::format("hold_({}, splat({}), splat({}))", leaf(from.in[0]), low, high), 0, most};
    }
    if (from.type == Type::kF32) return Near{leaf(k), 0, most};
    if (!is_whole(from.type) || !fits(from.range)) return {};
    return Near{fmt::format("{}({})", from.type == Type::kU32 ? "small_f32" : "to_f32", leaf(k)), 0, most};
  }

  // An integer times a power of two, which is exact.
  std::optional<Near> scaled(const Node& n) {
    const Node& by = node(n.in[1]);
    constexpr double kFar = 0x1p100;
    int exponent = 0;
    if (by.op != Op::kConst || std::frexp(by.number, &exponent) != 0.5) return {};
    if (by.number > kFar || by.number < 1 / kFar || !value(n.in[0]) || text_.min_unit(n.in[0]) < 0) return {};
    const auto of = near(n.in[0]);
    if (!of || of->units != 0 || of->most > kWholeFloat) return {};
    return Near{fmt::format("mul({}, {})", of->text, constant(fmt::format("({:a}f)", by.number))), 0,
                of->most * by.number};
  }

  // Two roundings: one of the reciprocal, one of the product. Division by zero yields 0, or falls back to doubles.
  std::optional<Near> divided(const Node& n) {
    if (!value(n.in[0]) || value(n.in[1])) return {};
    const bool or_zero = n.op == Op::kDivide;
    if (or_zero && (node(n.in[2]).op != Op::kConst || node(n.in[2]).number != 0)) return {};
    const auto of = near(n.in[0]);
    if (!of) return {};
    const std::string by = text_.number(n.in[1]);
    surely(fmt::format("{}({})", or_zero ? "plain_or_zero" : "plain", by));
    return Near{fmt::format("mul({}, {})", of->text, constant(fmt::format("per_of({})", by))), of->units + 2,
                kWholeFloat * kWholeFloat};
  }

  const Checked& program_;
  const NodeText& text_;
  FloorText found_;
  std::string sure_;
  Range ends_ = {-0x1p20, 0x1p20};
  int units_ = 0, constants_ = 0;
  double more_ = 0;
};

}  // namespace

std::optional<FloorText> floor_text(const Checked& program, const NodeText& text, int root,
                                    const Nodes& nodes, const Nodes& kept) {
  Finder finder(program, text, root);
  if (!finder.run()) return {};
  FloorText found = finder.take();
  const auto alone = [&](int k) { return std::binary_search(found.alone.begin(), found.alone.end(), k); };
  for (const int k : found.inside)
    if (program.node(k).type == Type::kF64 && program.node(k).op != Op::kConvert) found.alone.push_back(k);
  for (const int k : kept)
    if (k != kNone && alone(k)) return {};
  for (const int k : nodes)
    if (k != root && !alone(k))
      for (const int from : program.node(k).in)
        if (from != kNone && alone(from)) return {};
  return found;
}

}  // namespace tithe::lang
