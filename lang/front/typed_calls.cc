// SPDX-License-Identifier: Apache-2.0
// The functions of the language: their argument types and results.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "lang/front/ranges.h"
#include "lang/front/typed.h"

namespace tithe::lang {

namespace {

constexpr unsigned kLevelBits[] = {2, 8};

// Functions whose result has the type of the arguments.
enum : unsigned { kFloats = 1, kSigned = 2, kUnsigned = 4 };
struct Function {
  std::string_view name;
  Op op;
  std::size_t args;
  unsigned types;
};
constexpr Function kFunctions[] = {
    {"abs", Op::kAbs, 1, kFloats | kSigned},
    {"min", Op::kMin, 2, kFloats | kSigned | kUnsigned},
    {"max", Op::kMax, 2, kFloats | kSigned | kUnsigned},
    {"clamp", Op::kClamp, 3, kFloats | kSigned | kUnsigned},
    {"floor", Op::kFloor, 1, kFloats},
    {"ceil", Op::kCeil, 1, kFloats},
    {"round", Op::kRound, 1, kFloats},
    {"sqrt", Op::kSqrt, 1, kFloats},
    {"divide", Op::kDivide, 3, kFloats | kSigned | kUnsigned},
};
struct Reduction {
  std::string_view name;
  Op op;
  bool of_blocks = false;  // over one number per block
};
constexpr Reduction kReductions[] = {{"sum", Op::kSum},
                                     {"mean", Op::kMean},
                                     {"largest", Op::kLargest},
                                     {"smallest", Op::kSmallest},
                                     {"count", Op::kCount},
                                     {"any", Op::kAny},
                                     {"all", Op::kAll},
                                     {"sum_of_blocks", Op::kSum, true},
                                     {"mean_of_blocks", Op::kMean, true},
                                     {"largest_of_blocks", Op::kLargest, true},
                                     {"smallest_of_blocks", Op::kSmallest, true},
                                     {"count_of_blocks", Op::kCount, true}};
struct Conversion {
  std::string_view name;
  Type type;
};
constexpr Conversion kConversions[] = {
    {"f32", Type::kF32}, {"f64", Type::kF64}, {"i32", Type::kI32}, {"u32", Type::kU32}};
constexpr std::string_view kOthers[] = {
    "signbit",        "copysign", "bits",        "from_bits",        "half_bits",
    "from_half_bits", "draw",     "shared_draw", "stochastic_level", "sampled_threshold",
    "scan",           "rank",     "sort",        "histogram",        "entry",
    "reduce"};
constexpr std::string_view kTables[] = {"scan", "rank", "sort", "histogram", "entry"};

template <typename Row>
const Row* find(std::span<const Row> rows, std::string_view name) {
  for (const Row& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

// A reduction over values has stage kBlock and adds a pass; a reduction over blocks has stage kAll.
Value Builder::reduce(std::string_view called, Value v, const Value* where, bool decode, Span at) {
  if (decode)
    return bad(at, fmt::format("'{}' cannot be used in decode, which works value by value", called),
               "compute it in encode, and send it");
  const Reduction& row = *find<Reduction>(kReductions, called);
  const Op op = row.op;
  const bool over_blocks = row.of_blocks;
  const bool of_bools = op == Op::kCount || op == Op::kAny || op == Op::kAll;
  if (v.literal) v = as(v, Type::kF32, "this");
  if (of_bools) v = as(v, Type::kBool, fmt::format("the argument of '{}'", called));
  if (v.bad()) return v;
  if (!of_bools && of(v).type == Type::kBool)
    return bad(v.at, fmt::format("'{}' requires numbers", called), "count(...) counts");
  if ((op == Op::kSum || op == Op::kMean) && !has_type(v, {Type::kF32, Type::kF64}, called))
    return {.at = at};
  if (over_blocks && !one_of_each_block(v, at)) return {.at = at};
  const Type type = op == Op::kCount ? Type::kU32 : of_bools ? Type::kBool : of(v).type;
  const Value found = add_selected(op, type, v, where, at);
  if (found.bad() || !over_blocks) return found_in_block(found);
  Node& node = program.nodes.back();
  node.stage = Stage::kAll;
  node.pass = 0;
  node.late = true;
  return found;
}

// These reductions need a pass over all blocks before the first block is sent.
bool Builder::one_of_each_block(const Value& v, Span at) {
  const Node& node = of(v);
  if (program.block == 0)
    bad(at, "the program has one block of all values", "reduce the values, or give blocks a length");
  else if (node.stage == Stage::kValue)
    bad(v.at, "this has one element per value; one per block is required",
        "reduce it over the block first: largest(...)");
  else if (node.late)
    bad(v.at, "all blocks are read only once, and this value is known after that");
  else
    return true;
  return false;
}

// draw and shared_draw are u32 per value. stochastic_level rounds value / scale to a level of `bits` bits with the
// same draw, so it counts as the program's only draw.
Value Builder::random(std::string_view called, const std::vector<Value>& args, bool decode, Span at) {
  const bool level = called == "stochastic_level";
  const bool shared = called == "shared_draw";
  if (args.size() != (level ? 3 : 1))
    return bad(at, level ? "expected three arguments: stochastic_level(value, scale, bits)"
                         : fmt::format("expected one argument: {}(bits)", called));
  if (decode && !shared)
    return bad(at, "the receiver cannot repeat this rank's draws",
               "use shared_draw(bits), which is the same on all ranks, or send the draw");
  Value bits = args.back();
  bits = bits.literal ? as(bits, Type::kI32, "the number of bits") : bits;
  if (bits.bad()) return bits;
  const Range range = of(bits).range;
  const Range allowed =
      level ? Range{static_cast<double>(kLevelBits[0]), static_cast<double>(kLevelBits[1])} : Range{1, 32};
  if (!is_whole(of(bits).type) || !range.constant() || !within(range, allowed))
    return bad(bits.at, fmt::format("the number of bits must be a constant, {}", text(allowed)));
  if (!shared) {
    if (draws_)
      return bad(at, "this is the second draw for a value; a program can draw once",
                 "give the draw a name, and use parts of its bits");
    draws_ = true;
  }
  const auto index = static_cast<unsigned>(range.low);
  if (!level) {
    Node node{.op = shared ? Op::kSharedDraw : Op::kDraw,
              .type = Type::kU32,
              .stage = Stage::kValue,
              .decode = decode,
              .index = index};
    node.range = range_of(node.op, node.type, {}, index);
    return input(node, at);
  }
  const Value v = as(args[0], Type::kF32, "the value"), scale = as(args[1], Type::kF32, "the scale");
  if (!scale.bad() && of(scale).stage == Stage::kValue)
    return bad(scale.at, "the scale must be one number per block");
  Value found = add(Op::kLevel, Type::kI32, {v, scale}, at, index);
  if (!found.bad()) program.nodes.back().stage = Stage::kValue;
  return found;
}

// Tries the kinds of functions in turn: tables, reductions, conversions, arithmetic, then functions with rules of their
// own.
Value Builder::call(std::string_view called, std::vector<Value> args, const Value* where, bool decode,
                    Span at) {
  for (const Value& v : args)
    if (v.bad()) return {.at = at};
  const Reduction* reduction = find<Reduction>(kReductions, called);
  if (where != nullptr && called != "histogram" && (reduction == nullptr || reduction->of_blocks))
    return bad(where->at, fmt::format("'{}' has no 'where'", called),
               "'where' is allowed in sum, mean, largest, smallest and count");
  if (std::find(std::begin(kTables), std::end(kTables), called) != std::end(kTables))
    return table(called, std::move(args), where, decode, at);
  const auto takes = [&](std::size_t count) {
    if (args.size() == count) return true;
    bad(at,
        fmt::format("'{}' takes {} argument{}, not {}", called, count, count == 1 ? "" : "s", args.size()));
    return false;
  };
  if (reduction != nullptr) return takes(1) ? reduce(called, args[0], where, decode, at) : Value{.at = at};
  if (const Conversion* to = find<Conversion>(kConversions, called))
    return takes(1) ? convert(args[0], to->type, at) : Value{.at = at};
  if (const Function* f = find<Function>(kFunctions, called)) {
    if (!takes(f->args)) return {.at = at};
    if (!unify_all(args, at)) return {.at = at};
    const Type type = of(args[0]).type;
    const unsigned kind = is_float(type)       ? kFloats
                          : type == Type::kI32 ? kSigned
                          : type == Type::kU32 ? kUnsigned
                                               : 0U;
    if ((kind & f->types) == 0)
      return bad(args[0].at, fmt::format("'{}' does not accept {}", called, name(type)));
    if (args.size() == 1) return add(f->op, type, {args[0]}, at);
    if (args.size() == 2) return add(f->op, type, {args[0], args[1]}, at);
    return add(f->op, type, {args[0], args[1], args[2]}, at);
  }
  if (called == "draw" || called == "shared_draw" || called == "stochastic_level")
    return random(called, args, decode, at);
  if (called == "signbit")
    return takes(1) ? add(Op::kSignbit, Type::kBool, {as(args[0], Type::kF32, "this")}, at) : Value{.at = at};
  if (called == "bits")
    return takes(1) ? add(Op::kBits, Type::kU32, {as(args[0], Type::kF32, "this")}, at) : Value{.at = at};
  if (called == "from_bits")
    return takes(1) ? add(Op::kFloat, Type::kF32, {as(args[0], Type::kU32, "this")}, at) : Value{.at = at};
  if (called == "half_bits")
    return takes(1) ? add(Op::kHalf, Type::kU32, {as(args[0], Type::kF32, "this")}, at) : Value{.at = at};
  if (called == "from_half_bits") {
    if (!takes(1)) return {.at = at};
    const Value from = as(args[0], Type::kU32, "this");
    if (!from.bad() && of(from).range.high > 0xffff)
      return bad(at, "this can be more than 16 bits", "mask the other bits: & 0xffff");
    return add(Op::kFromHalf, Type::kF32, {from}, at);
  }
  if (called == "copysign") {
    if (!takes(2)) return {.at = at};
    return add(Op::kCopysign, Type::kF32, {as(args[0], Type::kF32, "this"), as(args[1], Type::kF32, "this")},
               at);
  }
  // sampled_threshold
  if (!takes(2)) return {.at = at};
  if (decode || program.block != 0)
    return bad(at, "a sample requires one block of all values, in encode", "remove 'block'");
  const Value ratio = as(args[0], Type::kF64, "the ratio"), share = as(args[1], Type::kF64, "the share");
  for (const Value& v : {ratio, share})
    if (!v.bad() && (of(v).stage != Stage::kPlan || of(v).range.low <= 0 || of(v).range.high > 1))
      return bad(v.at, "this must be a fraction above 0 and at most 1, known before the values");
  Value found = add(Op::kThreshold, Type::kF32, {ratio, share}, at);
  if (found.bad()) return found;
  program.nodes.back().stage = Stage::kBlock;
  program.nodes.back().pass = 1;
  return found;
}

std::vector<std::string_view> Builder::functions() const {
  std::vector<std::string_view> all(std::begin(kOthers), std::end(kOthers));
  for (const Function& f : kFunctions) all.push_back(f.name);
  for (const Reduction& r : kReductions) all.push_back(r.name);
  for (const Conversion& c : kConversions) all.push_back(c.name);
  return all;
}

bool Builder::knows(std::string_view function) const {
  const auto all = functions();
  return std::find(all.begin(), all.end(), function) != all.end();
}

}  // namespace tithe::lang
