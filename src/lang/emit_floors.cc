// SPDX-License-Identifier: Apache-2.0
#include "lang/emit_floors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tithe::lang {

namespace {

constexpr double kWholeFloat = 0x1p24;  // whole numbers up to here are floats

// A double of each value, as a float.
struct Near {
  std::string text;
  int units = 0;  // of 2^-24 that it may be off; 0: it is exact
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
    if (node(n.in[0]).type != Type::kF64 || !fits(n.range)) return false;
    const int from = text_.before_clamp(n.in[0], n.range);
    if (from != n.in[0]) found_.inside.push_back(n.in[0]);
    const auto whole = whole_of(from);
    if (!whole) return false;
    const bool is_u32 = n.type == Type::kU32;
    found_.whole = fmt::format("{}small_i32({}, {:a}, {:a}){}", is_u32 ? "as_u(" : "", *whole, n.range.low,
                               n.range.high, is_u32 ? ")" : "");
    found_.before.push_back(fmt::format("const Near near{} = near_of({}, {:a}f, {});", found_.root,
                                        units_ + 2, more_ + 1, sure_.empty() ? "true" : sure_));
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

  // In a register in front of the loop.
  std::string constant(const std::string& number) {
    const std::string name = fmt::format("c{}_{}", found_.root, constants_++);
    found_.before.push_back(fmt::format("const F {} = kept(splat({}));", name, number));
    return name;
  }
  void surely(const std::string& what) { sure_ += (sure_.empty() ? "" : " && ") + what; }

  // A double that is no value's, where it is a float.
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

  // Above the floor everything is whole, and small.
  std::optional<std::string> whole_of(int k) {
    const Node& n = node(k);
    if (!value(k)) return {};
    found_.inside.push_back(k);
    if (n.op == Op::kFloor) return floor_of(n.in[0]);
    if (n.op != Op::kMin && n.op != Op::kMax && n.op != Op::kClamp) return {};
    std::string text = n.op == Op::kMin ? "min_(" : n.op == Op::kMax ? "max_(" : "clamp_(";
    int of_values = 0;
    for (const int from : n.in) {
      if (from == kNone) continue;
      const auto part = value(from) ? whole_of(from) : whole_number(from);
      if (!part) return {};
      of_values += value(from) ? 1 : 0;
      text += (text.back() == '(' ? "" : ", ") + *part;
    }
    if (of_values != 1) return {};
    return text + ")";
  }
  std::optional<std::string> whole_number(int k) {
    const Node& n = node(k);
    const bool whole = n.op == Op::kConst
                           ? std::floor(n.number) == n.number && std::fabs(n.number) <= kWholeFloat
                           : n.op == Op::kConvert && is_whole(node(n.in[0]).type);
    const auto as = number(k);
    if (!whole || !as) return {};
    return constant(*as);
  }

  std::optional<std::string> floor_of(int k) {
    const Node& n = node(k);
    std::optional<Near> sum;
    if (n.op == Op::kAdd && value(k)) {
      auto a = near(n.in[0]), b = near(n.in[1]);
      if (!a || !b || std::min(a->units, b->units) != 0) return {};
      found_.inside.push_back(k);
      more_ = a->units == 0 ? a->most : b->most;
      if (more_ > kWholeFloat) return {};
      sum = Near{fmt::format("add({}, {})", a->text, b->text), std::max(a->units, b->units), 0};
    } else {
      sum = near(k);
    }
    if (!sum) return {};
    units_ = sum->units;
    found_.sum = sum->text;
    return fmt::format("floor_(s{})", found_.root);
  }

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
      case Op::kSelect:  // which of both is known
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

  // Whole numbers by a power of two, which is exact.
  std::optional<Near> scaled(const Node& n) {
    const Node& by = node(n.in[1]);
    constexpr double kFar = 0x1p100;
    int exponent = 0;
    if (by.op != Op::kConst || std::frexp(by.number, &exponent) != 0.5) return {};
    if (by.number > kFar || by.number < 1 / kFar || !value(n.in[0]) || text_.least_unit(n.in[0]) < 0)
      return {};
    const auto of = near(n.in[0]);
    if (!of || of->units != 0 || of->most > kWholeFloat) return {};
    return Near{fmt::format("mul({}, {})", of->text, constant(fmt::format("({:a}f)", by.number))), 0,
                of->most * by.number};
  }

  // One rounding is the reciprocal's, one the product's. Divided by nothing it is 0 here, or doubles decide.
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
  int units_ = 0, constants_ = 0;
  double more_ = 0;
};

}  // namespace

std::optional<FloorText> floor_text(const Checked& program, const NodeText& text, int root,
                                    const Nodes& nodes, const Nodes& kept) {
  Finder finder(program, text, root);
  if (!finder.run()) return {};
  FloorText found = finder.take();
  const auto inside = [&](int k) {
    return k == root || std::binary_search(found.inside.begin(), found.inside.end(), k);
  };
  for (const int k : kept)
    if (k != root && inside(k)) return {};
  for (const int k : nodes)
    if (!inside(k))
      for (const int from : program.node(k).in)
        if (from != kNone && from != root && inside(from)) return {};
  return found;
}

}  // namespace tithe::lang
