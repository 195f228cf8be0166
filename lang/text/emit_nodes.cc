// SPDX-License-Identifier: Apache-2.0
// A node has two texts: for sixteen values in vectors, and for one value in a kernel. Both give the interpreter's bits.
// A cheaper function of the prelude is used only if the ranges of the operands prove that its result is equal.
#include "lang/text/emit_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace tithe::lang {

namespace {

// The functions of the prelude for operators without a form of their own in expression().
constexpr std::pair<Op, const char*> kFunctions[] = {
    {Op::kAdd, "add"},          {Op::kSub, "sub"},
    {Op::kMul, "mul"},          {Op::kDiv, "div_"},
    {Op::kMod, "mod_"},         {Op::kNeg, "neg"},
    {Op::kBitAnd, "and_"},      {Op::kBitOr, "or_"},
    {Op::kBitXor, "xor_"},      {Op::kBitNot, "not_"},
    {Op::kLess, "lt"},          {Op::kLessEqual, "le"},
    {Op::kEqual, "eq"},         {Op::kNotEqual, "ne"},
    {Op::kLogicNot, "lnot"},    {Op::kSelect, "select"},
    {Op::kAbs, "abs_"},         {Op::kMin, "min_"},
    {Op::kMax, "max_"},         {Op::kFloor, "floor_"},
    {Op::kCeil, "ceil_"},       {Op::kRound, "round_"},
    {Op::kSqrt, "sqrt_"},       {Op::kDivide, "divide_"},
    {Op::kSignbit, "signbit_"}, {Op::kCopysign, "copysign_"},
    {Op::kBits, "bits_"},       {Op::kFloat, "float_"},
    {Op::kHalf, "half_bits"},   {Op::kFromHalf, "from_half_bits"}};

const char* name_of(Op op) {
  const auto* const row = std::ranges::find(kFunctions, op, &std::pair<Op, const char*>::first);
  TITHE_ASSERT(row != std::end(kFunctions));
  return row->second;
}

// Both ends are exact in f32 and within i32, so vector instructions convert the values between them.
bool is_small(Range r) {
  const auto fits = [](double v) {
    return std::fabs(v) < 0x1p31 && static_cast<double>(static_cast<float>(v)) == v;
  };
  return fits(r.low) && fits(r.high);
}

}  // namespace

std::string NodeText::literal(Type type, double v, bool of_sixteen) {
  switch (type) {
    case Type::kBool:
      return v != 0 ? "true" : "false";
    case Type::kI32:
      return of_sixteen || v < 0 ? fmt::format("int32_t({:.0f}LL)", v) : fmt::format("{:.0f}", v);
    case Type::kU32:
      if (!of_sixteen && v >= 4096) return fmt::format("{:#x}U", static_cast<std::uint32_t>(v));
      return fmt::format("{:.0f}U", v);
    case Type::kF32:
      return fmt::format("({:a}f)", v);
    default:
      return fmt::format("({:a})", v);
  }
}

std::string NodeText::name(int k) const {
  const Node& n = node(k);
  if (!of_sixteen_ && n.op == Op::kTaken) return "x";
  if (!of_sixteen_ && !n.name.empty()) return fmt::format("{}_{}", n.name, k);
  return fmt::format("{}{}", n.stage == Stage::kValue || !of_sixteen_ ? 'v' : 'b', k);
}

std::string NodeText::number_type(int k) const {
  constexpr const char* kNames[] = {"bool", "int32_t", "uint32_t", "float", "double"};
  return kNames[static_cast<int>(node(k).type)];
}
std::string NodeText::value_type(int k) const {
  constexpr const char* kNames[] = {"M", "I", "U", "F", "D"};
  return kNames[static_cast<int>(node(k).type)];
}

std::string NodeText::number(int k) const {
  if (!of_sixteen_) return operand(k);
  if (node(k).op == Op::kConst) return literal(node(k).type, node(k).number, true);
  return fmt::format("b{}", k);
}
std::string NodeText::values(int k) const {
  if (!of_sixteen_) return operand(k);
  if (node(k).stage == Stage::kValue) return fmt::format("v{}", k);
  const std::string all = fmt::format("splat({})", number(k));
  const auto kept = cached_.find(all);
  return kept == cached_.end() ? all : kept->second;
}

// Constants 0 are free and bools are not splat, so neither is kept in a register.
std::string NodeText::keep(int k) {
  const Node& n = node(k);
  const std::string all = fmt::format("splat({})", number(k));
  if (n.stage != Stage::kPlan || n.type == Type::kBool || (n.op == Op::kConst && n.number == 0)) return "";
  const std::string name = fmt::format("k{}", cached_.size());
  if (!cached_.emplace(all, name).second) return "";
  return fmt::format("const {} {} = kept({});", value_type(k), name, all);
}

int NodeText::before_clamp(int k, Range range) const {
  const Node& n = node(k);
  if (!of_sixteen_ || n.op != Op::kClamp || n.stage != Stage::kValue || !is_float(n.type)) return k;
  const auto is = [&](int bound, double end) {
    return node(bound).stage == Stage::kPlan && node(bound).range.low == end && node(bound).range.high == end;
  };
  return is(n.in[1], range.low) && is(n.in[2], range.high) ? n.in[0] : k;
}

std::string NodeText::conversion(int k, std::string of) const {
  const Node& to = node(k);
  const Node& from = node(to.in[0]);
  const Range range = to.range;
  if (of_sixteen_ && to.stage == Stage::kValue && is_whole(to.type))
    of = values(before_clamp(to.in[0], range));
  const bool whole = from.type == Type::kI32 || from.type == Type::kU32 || from.type == Type::kBool;
  const bool low_half = from.type == Type::kU32 && from.range.high < 0x1p31;
  switch (to.type) {
    case Type::kF32:
      return fmt::format("{}({})", low_half ? "small_f32" : "to_f32", of);
    case Type::kF64:
      return fmt::format("{}({})", low_half ? "small_f64" : "to_f64", of);
    case Type::kI32:
      if (whole) return fmt::format("as_i({})", of);
      return fmt::format("{}_i32({}, {:a}, {:a})", is_small(range) ? "small" : "to", of, range.low,
                         range.high);
    default:
      if (whole) return fmt::format("as_u({})", of);
      if (is_small(range)) return fmt::format("as_u(small_i32({}, {:a}, {:a}))", of, range.low, range.high);
      return fmt::format("to_u32({}, {:a}, {:a})", of, range.low, range.high);
  }
}

// Vectors have cheaper forms for some operators: shifts by constants, signed comparisons of small u32, min-max
// clamps.
std::string NodeText::expression(int k) const {
  const Node& n = node(k);
  if (!of_sixteen_)
    if (const std::string text = scalar(k); !text.empty()) return text;
  const auto in = [&](std::size_t which) {
    if (!of_sixteen_) return argument(n.in[which]);
    return n.stage == Stage::kValue ? values(n.in[which]) : number(n.in[which]);
  };
  switch (n.op) {
    case Op::kParam:
      return fmt::format("call->settings[{}]", n.index);
    case Op::kN:
      return "uint32_t(call->n)";
    case Op::kLength:
      return "uint32_t(len)";
    case Op::kConvert:
      return conversion(k, in(0));
    case Op::kClamp:
      return fmt::format(
          "{}({}, {}, {})",
          of_sixteen_ && n.stage == Stage::kValue && node(n.in[1]).range.high <= node(n.in[2]).range.low
              ? "hold_"
              : "clamp_",
          in(0), in(1), in(2));
    case Op::kSelect:
      if (const Range& known = node(n.in[0]).range; known.constant()) return known.low != 0 ? in(1) : in(2);
      return fmt::format("select({}, {}, {})", in(0), in(1), in(2));
    case Op::kShiftLeft:
    case Op::kShiftRight:
      if (const Node& by = node(n.in[1]);
          of_sixteen_ && n.stage == Stage::kValue && by.op == Op::kConst && by.number >= 0 && by.number < 32)
        return fmt::format("{}<{:.0f}>({})", n.op == Op::kShiftLeft ? "shl_by" : "shr_by", by.number, in(0));
      return fmt::format("{}({}, as_u({}))", n.op == Op::kShiftLeft ? "shl" : "shr", in(0), in(1));
    case Op::kLess:
    case Op::kLessEqual:  // AVX2 compares integers as signed ones
      if (of_sixteen_ && n.stage == Stage::kValue && node(n.in[0]).type == Type::kU32 &&
          std::max(node(n.in[0]).range.high, node(n.in[1]).range.high) < 0x1p31)
        return fmt::format("{}(as_i({}), as_i({}))", name_of(n.op), in(0), in(1));
      [[fallthrough]];
    default: {
      std::string text = fmt::format("{}({}", name_of(n.op), in(0));
      for (std::size_t j = 1; j < n.in.size() && n.in[j] != kNone; ++j) text += ", " + in(j);
      return text + ")";
    }
  }
}

int NodeText::min_unit(int k) const {
  constexpr int kUnknown = -10000, kOfFloats = -149;
  const Node& n = node(k);
  if (is_whole(n.type) || n.type == Type::kBool) return 0;
  if (n.type == Type::kF32) return kOfFloats;
  switch (n.op) {
    case Op::kConst:
      return n.number == 0 ? 0 : std::ilogb(n.number) - 52;
    case Op::kConvert:
      return min_unit(n.in[0]);
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
      return 0;
    case Op::kNeg:
    case Op::kAbs:
      return min_unit(n.in[0]);
    case Op::kAdd:
    case Op::kSub:
    case Op::kMin:
    case Op::kMax:
      return std::min(min_unit(n.in[0]), min_unit(n.in[1]));
    case Op::kMul:
      return std::max(min_unit(n.in[0]) + min_unit(n.in[1]), kUnknown);
    default:
      return kUnknown;
  }
}

std::string NodeText::definition(int k) const {
  const bool value = node(k).stage == Stage::kValue;
  return fmt::format("const {} {} = {};", value ? value_type(k) : number_type(k), name(k), expression(k));
}

}  // namespace tithe::lang
