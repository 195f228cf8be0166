// SPDX-License-Identifier: Apache-2.0
#include "lang/front/merge_nodes.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

namespace tithe::lang {

namespace {

bool same(const Node& a, const Node& b) {
  const auto bits = [](double v) { return std::bit_cast<std::uint64_t>(v); };
  return a.op == b.op && a.type == b.type && a.stage == b.stage && a.decode == b.decode && a.late == b.late &&
         a.before == b.before && a.pass == b.pass && a.in == b.in && bits(a.number) == bits(b.number) &&
         a.index == b.index && a.range.low == b.range.low && a.range.high == b.range.high;
}

// Nodes that are referenced by number from outside `nodes`, so they can be neither merged nor removed.
std::vector<bool> apart(const Checked& program) {
  std::vector<bool> is(program.nodes.size());
  for (std::size_t k = 0; k < is.size(); ++k) {
    const Op op = program.nodes[k].op;
    is[k] = op == Op::kItem || op == Op::kBefore || op == Op::kAdded || op == Op::kArgument;
  }
  for (const Folding& f : program.foldings)
    for (const int k : f.body) is[static_cast<std::size_t>(k)] = true;
  return is;
}

// Integers and bools with a range of one value are constants; a float could still be NaN.
bool is_known(const Node& node) {
  return node.stage == Stage::kPlan && node.type != Type::kF32 && node.type != Type::kF64 &&
         node.range.constant();
}

// The nodes that affect an item, a condition or the decoded value.
std::vector<bool> read_nodes(const Checked& program) {
  std::vector<bool> read(program.nodes.size());
  const auto mark = [&](int k) {
    if (k != kNone) read[static_cast<std::size_t>(k)] = true;
  };
  each_result(program, mark);
  for (const Folding& f : program.foldings)
    for (const int k : f.body) mark(k);
  for (std::size_t k = read.size(); k-- > 0;)
    if (read[k])
      for (const int from : program.nodes[k].in) mark(from);
  return read;
}

}  // namespace

// One pass in topological order: `now[k]` is the node that replaces node k, so the operands of node k are final when
// it is compared with the nodes before it.
Checked with_merged_nodes(Checked program) {
  const std::vector<bool> stays = apart(program);
  std::vector<int> now(program.nodes.size());
  std::iota(now.begin(), now.end(), 0);
  const auto follow = [&](int& k) {
    if (k != kNone) k = now[static_cast<std::size_t>(k)];
  };
  for (std::size_t k = 0; k < now.size(); ++k) {
    Node& node = program.nodes[k];
    for (int& from : node.in) follow(from);
    while (node.op == Op::kSelect && program.node(node.in[0]).op == Op::kLogicNot)
      node.in = {program.node(node.in[0]).in[0], node.in[2], node.in[1]};
    if (!stays[k] && is_known(node))
      node = {.op = Op::kConst,
              .type = node.type,
              .decode = node.decode,
              .number = node.range.low,
              .range = node.range,
              .name = node.name};
    if (!stays[k] && node.op == Op::kSelect && program.node(node.in[0]).op == Op::kConst)
      now[k] = node.in[program.node(node.in[0]).number != 0 ? 1 : 2];
    for (std::size_t j = 0; j < k && !stays[k] && now[k] == static_cast<int>(k); ++j)
      if (!stays[j] && now[j] == static_cast<int>(j) && same(program.nodes[j], node))
        now[k] = static_cast<int>(j);
  }
  each_result(program, follow);
  for (std::size_t k = 0; k < now.size(); ++k)
    if (std::string& name = program.nodes[static_cast<std::size_t>(now[k])].name; name.empty())
      name = program.nodes[k].name;
  const std::vector<bool> read = read_nodes(program);
  for (std::size_t k = 0; k < read.size(); ++k)
    if (!read[k] && !stays[k]) program.nodes[k] = {};
  return program;
}

}  // namespace tithe::lang
