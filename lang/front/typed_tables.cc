// SPDX-License-Identifier: Apache-2.0
// Operators that depend on the order of a block's values or produce a table: scan, sort, rank, histogram, and
// reductions with a function of the program.
#include <fmt/format.h>

#include "lang/front/passes.h"
#include "lang/front/ranges.h"
#include "lang/front/typed.h"

namespace tithe::lang {

Value Builder::no_number(const Value& table) {
  return bad(table.at, "this is a table; a number is required", "use entry(table, k), with k from 0");
}

Value Builder::add_selected(Op op, Type type, const Value& v, const Value* where, Span at, unsigned index) {
  if (where == nullptr) return add(op, type, {v}, at, index);
  return add(op, type, {v, as(*where, Type::kBool, "the condition after 'where'")}, at, index);
}

// The result is available after the pass that computes it.
Value Builder::found_in_block(Value found) {
  if (found.bad()) return found;
  Node& node = program.nodes.back();
  node.stage = Stage::kBlock;
  ++node.pass;
  return found;
}

// Integers only: a float sum would depend on the order of additions.
Value Builder::scan(Value v, Span at) {
  if (!v.literal && !v.bad() && of(v).op == Op::kHistogram) {
    const Node from = of(v);
    const Value sums = add(Op::kSums, Type::kU32, {v}, at, from.index);
    if (!sums.bad()) program.nodes.back().range = from.range;
    return sums;
  }
  if (v.literal) v = as(v, Type::kU32, "this");
  if (!v.bad() && of(v).type == Type::kBool) v = convert(v, Type::kU32, v.at);
  if (v.bad()) return v;
  if (of(v).type != Type::kU32)
    return bad(v.at, fmt::format("'scan' requires u32 or bool, but this is {}", name(of(v).type)),
               "u32(...)");
  const Range range = of(v).range;
  Value found = add(Op::kScan, Type::kU32, {v}, at);
  if (found.bad()) return found;
  Node& node = program.nodes.back();
  node.stage = Stage::kValue;
  const Range sums{range.low, range.high * static_cast<double>(program.block)};
  if (program.block != 0 && within(sums, whole_range(Type::kU32))) node.range = sums;
  return found;
}

// sort(v) is the table of sorted values; rank(v) is each value's position in that table.
Value Builder::sorted(Op op, Value v, Span at) {
  if (v.literal) v = as(v, Type::kF32, "this");
  if (!v.bad() && is_table(of(v).op)) return no_number(v);
  if (v.bad() || !has_type(v, {Type::kF32, Type::kI32, Type::kU32}, op == Op::kSort ? "sort" : "rank"))
    return {.at = at};
  if (program.block == 0 || program.block > kMaxSorted)
    return bad(at, fmt::format("values can be sorted only in blocks of at most {} values", kMaxSorted),
               "block 1024");
  const Range range = of(v).range;
  const Value table = found_in_block(add(op, op == Op::kSort ? of(v).type : Type::kU32, {v}, at));
  if (table.bad()) return table;
  if (op == Op::kSort) {
    program.nodes.back().range = joined(range, {0, 0});
    return table;
  }
  Value rank = add(Op::kRank, Type::kU32, {table}, at);
  if (rank.bad()) return rank;
  program.nodes.back().stage = Stage::kValue;
  program.nodes.back().range = {0, static_cast<double>(program.block - 1)};
  return rank;
}

Value Builder::histogram(const std::vector<Value>& args, const Value* where, Span at) {
  Value v = args[0], entries = args[1];
  if (v.literal) v = as(v, Type::kU32, "this");
  if (entries.literal) entries = as(entries, Type::kI32, "the number of entries");
  if (v.bad() || entries.bad() || !has_type(v, {Type::kI32, Type::kU32}, "histogram")) return {.at = at};
  const Range count = of(entries).range;
  if (!is_whole(of(entries).type) || !count.constant() || !within(count, {1, kMaxEntries}))
    return bad(entries.at, fmt::format("the number of entries must be a constant, 1 .. {}", kMaxEntries));
  if (!within(of(v).range, {0, count.low - 1}))
    return bad(v.at,
               fmt::format("this can be {}; the table has the entries {}", text(of(v).range),
                           text({0, count.low - 1})),
               "clamp it");
  const auto index = static_cast<unsigned>(count.low);
  const Value table = found_in_block(add_selected(Op::kHistogram, Type::kU32, v, where, at, index));
  const double most = program.block == 0 ? 0x1p32 - 2 : static_cast<double>(program.block);
  if (!table.bad()) program.nodes.back().range = {0, most};
  return table;
}

Value Builder::entry(Value table, Value index, Span at) {
  if (index.literal) index = as(index, Type::kU32, "the number of an entry");
  if (index.bad()) return index;
  if (table.literal || !is_table(of(table).op))
    return bad(table.at, "this is not a table", "tables are sort(...) and histogram(...)");
  if (!has_type(index, {Type::kI32, Type::kU32}, "entry")) return {.at = at};
  if (of(index).range.low < 0)
    return bad(index.at, fmt::format("this can be {}; entries are numbered from 0", text(of(index).range)),
               "max(0, ...)");
  const Range range = joined(of(table).range, {0, 0});
  Value found = add(Op::kEntry, of(table).type, {table, index}, at);
  if (!found.bad()) program.nodes.back().range = range;
  return found;
}

Value Builder::table(std::string_view called, std::vector<Value> args, const Value* where, bool decode,
                     Span at) {
  const std::size_t wanted = called == "histogram" || called == "entry" ? 2 : 1;
  if (args.size() != wanted)
    return bad(at, fmt::format("'{}' takes {} argument{}, not {}", called, wanted, wanted == 1 ? "" : "s",
                               args.size()));
  if (decode)
    return bad(at, fmt::format("'{}' cannot be used in decode, which works value by value", called),
               "compute it in encode, and send it");
  if (called == "scan") return scan(args[0], at);
  if (called == "histogram") return histogram(args, where, at);
  if (called == "entry") return entry(args[0], args[1], at);
  return sorted(called == "sort" ? Op::kSort : Op::kOrder, args[0], at);
}

// True if the function's result is within `range` whenever its arguments are. Adds a problem for an invalid function.
bool Builder::try_body(const Body& body, Type type, Range range, Folding& folding, Span at) {
  const auto argument = [&](unsigned index) {
    return input({.op = Op::kArgument, .type = type, .stage = Stage::kValue, .index = index, .range = range},
                 at);
  };
  const Value left = argument(0), right = argument(1);
  const Value made = as(body(left, right), type, "the result of the function");
  folding = {.left = left.node, .right = right.node, .result = made.node};
  if (made.bad()) return false;
  if (of(made).stage != Stage::kValue) {
    bad(at, "the result of the function does not depend on its arguments", "use both arguments");
    return false;
  }
  for (std::size_t k = static_cast<std::size_t>(right.node) + 1; k < program.nodes.size(); ++k) {
    const Node& node = program.nodes[k];
    if (node.op >= Op::kDraw) {
      bad(at, "the function may use only its two arguments",
          "draws, reductions and tables are not allowed in it");
      return false;
    }
    if (node.stage == Stage::kValue) folding.body.push_back(static_cast<int>(k));
  }
  return within(of(made).range, range);
}

// Induction over the function: if it keeps the joint range of values and start, that is the range of the result; if
// not, the range is that of the type.
Value Builder::fold(const Body& body, Value start, Value v, const Value* where, Span at) {
  if (v.literal) v = as(v, Type::kF32, "this");
  if (v.bad() || start.bad()) return {.at = at};
  const Type type = of(v).type;
  if (type == Type::kBool || is_table(of(v).op))
    return bad(v.at, "'reduce' requires numbers", "use any(...), all(...) or count(...) for bools");
  start = as(start, type, "the start");
  if (start.bad()) return start;
  if (of(start).stage != Stage::kPlan)
    return bad(start.at, "the start value must be known before the values");
  const std::size_t nodes = program.nodes.size(), problems = problems_.count();
  Range range = joined(of(v).range, of(start).range);
  Folding folding;
  bool keeps = try_body(body, type, range, folding, at);
  if (problems_.count() != problems) return {.at = at};
  if (!keeps) {
    program.nodes.resize(nodes);
    range = whole_range(type);
    keeps = try_body(body, type, range, folding, at);
    if (problems_.count() != problems || !keeps) return {.at = at};
  }
  program.foldings.push_back(folding);
  const auto index = static_cast<unsigned>(program.foldings.size() - 1);
  Value which;
  if (where != nullptr) which = as(*where, Type::kBool, "the condition after 'where'");
  if (where != nullptr && which.bad()) return which;
  const Value found = found_in_block(where == nullptr ? add(Op::kReduce, type, {v, start}, at, index)
                                                      : add(Op::kReduce, type, {v, which, start}, at, index));
  if (found.bad()) return found;
  Node& node = program.nodes.back();
  if (where == nullptr) node.in = {v.node, kNone, start.node};
  node.range = range;
  return found;
}

}  // namespace tithe::lang
