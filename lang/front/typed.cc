// SPDX-License-Identifier: Apache-2.0
// Each operator converts its operands to a common type, rejects operand ranges for which its result is undefined, and
// adds one node with the range from interval arithmetic (ranges.h). Invariant: an i32 stays within its limits, a u32
// wraps around, the divisor of `/` and `%` is never 0, and a shift count is never negative.
#include "lang/front/typed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lang/front/ranges.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kMaxNodes = 1000;

struct Operator {
  std::string_view text;
  Op op;
  enum { kNumbers, kWholes, kBitsOrBools, kCompare, kBools } kind;
  bool swaps_operands = false;  // a > b is b < a
};
constexpr Operator kOperators[] = {
    {"+", Op::kAdd, Operator::kNumbers},        {"-", Op::kSub, Operator::kNumbers},
    {"*", Op::kMul, Operator::kNumbers},        {"/", Op::kDiv, Operator::kNumbers},
    {"%", Op::kMod, Operator::kWholes},         {"&", Op::kBitAnd, Operator::kBitsOrBools},
    {"|", Op::kBitOr, Operator::kBitsOrBools},  {"^", Op::kBitXor, Operator::kBitsOrBools},
    {"<<", Op::kShiftLeft, Operator::kWholes},  {">>", Op::kShiftRight, Operator::kWholes},
    {"<", Op::kLess, Operator::kCompare},       {"<=", Op::kLessEqual, Operator::kCompare},
    {">", Op::kLess, Operator::kCompare, true}, {">=", Op::kLessEqual, Operator::kCompare, true},
    {"==", Op::kEqual, Operator::kCompare},     {"!=", Op::kNotEqual, Operator::kCompare},
    {"and", Op::kBitAnd, Operator::kBools},     {"or", Op::kBitOr, Operator::kBools}};

}  // namespace

const char* name(Type type) {
  constexpr const char* kNames[] = {"bool", "i32", "u32", "f32", "f64"};
  return kNames[static_cast<int>(type)];
}

std::string text(Range range) { return fmt::format("{} .. {}", range.low, range.high); }

Value Builder::literal(double number, bool whole, Span at) const {
  return {.literal = true, .whole = whole, .number = number, .at = at};
}

Value Builder::bad(Span at, std::string what, std::string help) {
  problems_.add(at, std::move(what), std::move(help));
  return {.at = at};
}

Value Builder::input(const Node& node, Span at) {
  program.nodes.push_back(node);
  return {.node = static_cast<int>(program.nodes.size()) - 1, .at = at};
}

// Stage, pass and range follow from the operands.
Value Builder::add(Op op, Type type, std::initializer_list<Value> in, Span at, unsigned index) {
  if (program.nodes.size() >= kMaxNodes)
    return bad(at, "the program is too large", "a function is copied into each call");
  Node node{.op = op, .type = type, .index = index};
  std::array<Range, 3> ranges{};
  std::size_t k = 0;
  for (const Value& v : in) {
    if (v.bad()) return {.at = at};
    const Node& from = of(v);
    if (is_table(from.op) && op != Op::kEntry && op != Op::kRank && op != Op::kSums) return no_number(v);
    node.in[k] = v.node;
    ranges[k++] = from.range;
    node.stage = std::max(node.stage, from.stage);
    node.decode = node.decode || from.decode;
    node.late = node.late || from.late;
    node.before = node.before || from.before;
    node.pass = std::max(node.pass, from.pass);
  }
  // A comparison of floats has no known result, even for disjoint ranges: an operand may be NaN.
  node.range = compares(op) && !is_float(of(*in.begin()).type) ? of_comparison(op, ranges[0], ranges[1])
                                                               : range_of(op, type, ranges, index);
  if (type == Type::kI32 && !within(node.range, whole_range(type)))
    return bad(at, fmt::format("this can be {}; i32 holds {}", text(node.range), text(whole_range(type))),
               "clamp its operands, or compute in u32, which wraps around");
  if (type == Type::kU32 && !within(node.range, whole_range(type))) node.range = whole_range(type);
  return input(node, at);
}

Value Builder::as(Value v, Type type, const std::string& what) {
  if (v.bad()) return v;
  if (!v.literal && is_table(of(v).op)) return no_number(v);
  if (!v.literal) {
    const Type have = of(v).type;
    if (have == type) return v;
    if (type == Type::kF64 && is_whole(have)) return add(Op::kConvert, type, {v}, v.at);  // exact
    return bad(v.at, fmt::format("{} is {}; it must be {}", what, name(have), name(type)),
               type == Type::kBool ? "use a comparison" : fmt::format("write {}(...)", name(type)));
  }
  if (type == Type::kBool) return bad(v.at, "a number is not a condition", "write x != 0, or a comparison");
  if (is_whole(type) && !v.whole)
    return bad(v.at, fmt::format("{} is not a whole number; {} is required", v.number, name(type)));
  double number = v.number;
  if (type == Type::kF32) number = static_cast<double>(static_cast<float>(number));
  if (!within({number, number}, whole_range(type)) || !std::isfinite(number))
    return bad(v.at, fmt::format("{} is outside {}", v.number, name(type)));
  return input({.op = Op::kConst, .type = type, .number = number, .range = {number, number}}, v.at);
}

// Converts two operands to a common type: a literal takes the type of the other operand, and an integer becomes f64
// if the other operand is f64, which is exact.
bool Builder::unify(Value& a, Value& b, Span at) {
  if (a.bad() || b.bad()) return false;
  if (a.literal && b.literal) {
    const Type type = a.whole && b.whole ? Type::kI32 : Type::kF32;
    a = as(a, type, "this");
    b = as(b, type, "this");
  } else if (a.literal) {
    a = as(a, of(b).type, "this");
  } else if (b.literal) {
    b = as(b, of(a).type, "this");
  } else if (of(a).type != of(b).type) {
    if (of(a).type == Type::kF64 && is_whole(of(b).type)) {
      b = as(b, Type::kF64, "this");
    } else if (of(b).type == Type::kF64 && is_whole(of(a).type)) {
      a = as(a, Type::kF64, "this");
    } else {
      const Type wanted = is_float(of(a).type) && is_float(of(b).type) ? Type::kF32 : of(a).type;
      bad(at, fmt::format("the operands have different types: {} and {}", name(of(a).type), name(of(b).type)),
          fmt::format("convert one: {}(...)", name(wanted)));
      return false;
    }
  }
  return !a.bad() && !b.bad();
}

bool Builder::unify_all(std::vector<Value>& all, Span at) {
  const bool whole = std::all_of(all.begin(), all.end(), [](const Value& v) { return v.whole; });
  const auto typed = std::find_if(all.begin(), all.end(), [](const Value& v) { return !v.literal; });
  const Type type = typed != all.end() ? of(*typed).type : whole ? Type::kI32 : Type::kF32;
  for (Value& v : all)
    if (v.literal) v = as(v, type, "this");
  for (Value& v : all)
    if (v.bad() || !unify(all[0], v, at)) return false;
  for (Value& v : all)  // a later value may have widened the first
    if (!unify(all[0], v, at)) return false;
  return true;
}

// Two literals are folded here. All other operands are converted to a common type, except for shifts.
Value Builder::binary(std::string_view op, Value a, Value b, Span at) {
  if (a.bad() || b.bad()) return {.at = at};
  const Operator& row = *std::find_if(std::begin(kOperators), std::end(kOperators),
                                      [&](const Operator& o) { return o.text == op; });
  if (a.literal && b.literal && row.kind == Operator::kNumbers) {
    const double x = a.number, y = b.number;
    if (row.op == Op::kDiv && y == 0) return bad(at, "a division by zero");
    const double value = row.op == Op::kAdd   ? x + y
                         : row.op == Op::kSub ? x - y
                         : row.op == Op::kMul ? x * y
                                              : x / y;
    if (row.op == Op::kDiv && a.whole && b.whole) return literal(std::trunc(value), true, at);
    return literal(value, a.whole && b.whole, at);
  }
  // The count may have another type than the value.
  if (row.op == Op::kShiftLeft || row.op == Op::kShiftRight) {
    if (a.literal) a = as(a, b.literal || b.bad() ? Type::kI32 : of(b).type, "this");
    if (b.literal) b = as(b, Type::kI32, "the shift count");
    if (a.bad() || b.bad() || !has_type(a, {Type::kI32, Type::kU32}, op)) return {.at = at};
    if (!has_type(b, {Type::kI32, Type::kU32}, op)) return {.at = at};
    if (of(b).range.low < 0) return bad(b.at, "the shift count can be negative");
    return add(row.op, of(a).type, {a, b}, at);
  }
  if (row.kind == Operator::kBools) {
    a = as(a, Type::kBool, fmt::format("the left of '{}'", op));
    b = as(b, Type::kBool, fmt::format("the right of '{}'", op));
    return add(row.op, Type::kBool, {a, b}, at);
  }
  if (!unify(a, b, at)) return {.at = at};
  const Type type = of(a).type;
  if (row.kind == Operator::kCompare) {
    if (type == Type::kBool && row.op != Op::kEqual && row.op != Op::kNotEqual)
      return bad(at, fmt::format("'{}' compares numbers", op));
    return row.swaps_operands ? add(row.op, Type::kBool, {b, a}, at) : add(row.op, Type::kBool, {a, b}, at);
  }
  if (type == Type::kBool)
    return bad(at, fmt::format("'{}' requires numbers", op), "write and, or, not, or u32(...)");
  if (row.kind != Operator::kNumbers && !is_whole(type))
    return bad(at, fmt::format("'{}' requires whole numbers, not {}", op, name(type)));
  if (row.op == Op::kDiv || row.op == Op::kMod)
    if (const Range by = of(b).range; by.low <= 0 && by.high >= 0)
      return bad(b.at, fmt::format("the divisor can be 0: it is {}", text(by)),
                 "use divide(a, b, c), which is a / b, or c if b is 0");
  return add(row.op, type, {a, b}, at);
}

Value Builder::unary(std::string_view op, Value a, Span at) {
  if (a.bad()) return a;
  if (a.literal && op == "-") return literal(-a.number, a.whole, at);
  if (op == "not") {
    a = as(a, Type::kBool, "the negated value");
    return add(Op::kLogicNot, Type::kBool, {a}, at);
  }
  if (a.literal) a = as(a, Type::kU32, "this");
  if (a.bad()) return a;
  const Type type = of(a).type;
  if (op == "~") return has_type(a, {Type::kU32}, op) ? add(Op::kBitNot, type, {a}, at) : Value{.at = at};
  if (!has_type(a, {Type::kI32, Type::kF32, Type::kF64}, op)) return {.at = at};
  return add(Op::kNeg, type, {a}, at);
}

Value Builder::select(Value condition, Value a, Value b, Span at) {
  condition = as(condition, Type::kBool, "the condition");
  if (condition.bad() || !unify(a, b, at)) return {.at = at};
  return add(Op::kSelect, of(a).type, {condition, a, b}, at);
}

bool Builder::has_type(const Value& v, std::initializer_list<Type> types, std::string_view name_of_it) {
  if (v.bad()) return false;
  const Type have = of(v).type;
  if (std::find(types.begin(), types.end(), have) != types.end()) return true;
  std::string wanted;
  for (const Type t : types) wanted += fmt::format("{}{}", wanted.empty() ? "" : " or ", name(t));
  bad(v.at, fmt::format("'{}' requires {}, but this is {}", name_of_it, wanted, name(have)));
  return false;
}

Value Builder::convert(Value v, Type type, Span at) {
  if (v.bad()) return v;
  if (v.literal) {
    if (is_whole(type) && !v.whole) v = literal(std::trunc(v.number), true, v.at);
    v = as(v, type, "this");
    v.at = at;
    return v;
  }
  const Node from = of(v);
  if (from.type == type) return v;
  if (from.type == Type::kBool && type != Type::kU32)
    return bad(at, fmt::format("a bool cannot be converted to {}", name(type)),
               "use u32(...), which is 0 or 1");
  const Range range{std::trunc(from.range.low), std::trunc(from.range.high)};
  if (is_whole(type) && !within(range, whole_range(type)))
    return bad(
        v.at,
        fmt::format("this can be {}; {} holds {}", text(from.range), name(type), text(whole_range(type))),
        fmt::format("{}(clamp(..., low, high))", name(type)));
  return add(Op::kConvert, type, {v}, at);
}

}  // namespace tithe::lang
