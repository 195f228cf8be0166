// SPDX-License-Identifier: Apache-2.0
#include "lang/passes.h"

namespace tithe::lang {

namespace {

bool reduces(Op op) { return op >= Op::kSum; }

// The nodes that `roots` need, in order; roots among them.
std::vector<bool> needed(const Checked& program, const Nodes& roots, bool through_reductions) {
  std::vector<bool> need(program.nodes.size());
  for (const int r : roots)
    if (r != kNone) need[static_cast<std::size_t>(r)] = true;
  for (std::size_t k = program.nodes.size(); k-- > 0;) {
    if (!need[k] || (!through_reductions && reduces(program.nodes[k].op))) continue;
    for (const int from : program.nodes[k].in)
      if (from != kNone) need[static_cast<std::size_t>(from)] = true;
  }
  return need;
}

// Those nodes of the blocks and values in two lists; `pass`: of the block's what this many passes have found.
Pass in_lists(const Checked& program, const Nodes& roots) {
  const std::vector<bool> need = needed(program, roots, false);
  Pass pass;
  for (std::size_t k = 0; k < program.nodes.size(); ++k) {
    const Node& node = program.nodes[k];
    if (!need[k] || reduces(node.op)) continue;
    if (node.stage == Stage::kBlock) pass.block.push_back(static_cast<int>(k));
    if (node.stage == Stage::kValue) pass.value.push_back(static_cast<int>(k));
  }
  return pass;
}

}  // namespace

Schedule::Schedule(const Checked& program) {
  const std::size_t count = program.nodes.size();
  Nodes sent, read_roots = {program.result}, check_roots;
  for (const Item& item : program.items) {
    sent.push_back(item.value);
    read_roots.push_back(item.where);
    check_roots.push_back(item.where);
  }
  sent.push_back(program.pairs.where);
  // Whatever is needed in the end decides which reductions there are.
  const std::vector<bool> need = needed(program, sent, true);
  passes.resize(program.passes);
  for (unsigned p = 1; p <= program.passes; ++p) {
    Nodes found, operands;
    for (std::size_t k = 0; k < count; ++k) {
      const Node& node = program.nodes[k];
      if (!need[k] || !reduces(node.op) || node.pass != p) continue;
      found.push_back(static_cast<int>(k));
      if (node.op != Op::kThreshold)
        for (const int from : node.in)
          if (from != kNone) operands.push_back(from);
    }
    Pass& pass = passes[p - 1];
    pass = in_lists(program, operands);
    pass.reduce = std::move(found);
  }
  send = in_lists(program, sent);
  read = in_lists(program, read_roots);
  check = in_lists(program, check_roots);
  filled.resize(count);
  const auto fill_operands = [&](const Node& node) {
    for (const int from : node.in)
      if (from != kNone && program.nodes[static_cast<std::size_t>(from)].stage != Stage::kValue)
        filled[static_cast<std::size_t>(from)] = true;
  };
  for (std::size_t k = 0; k < count; ++k) {
    const Node& node = program.nodes[k];
    if (node.stage == Stage::kPlan) plan.push_back(static_cast<int>(k));
    if (node.stage == Stage::kValue || (reduces(node.op) && node.op != Op::kThreshold)) fill_operands(node);
    offset.push_back(bytes);
    bytes += kRun * (node.type == Type::kF64 ? 8 : 4);
  }
  // What is sent, decoded or asked for value by value is read as an array too.
  const auto fill = [&](int node) {
    if (node != kNone && program.nodes[static_cast<std::size_t>(node)].stage != Stage::kValue)
      filled[static_cast<std::size_t>(node)] = true;
  };
  for (const Item& item : program.items)
    if (item.array) fill(item.value);
  fill(program.result);
  fill(program.pairs.where);
}

std::size_t item_bytes(const Item& item, std::size_t len) {
  return item.array ? (len * item.bits + 7) / 8 : (item.bits + 7) / 8;
}

std::size_t once_bytes(const Checked& program) {
  std::size_t bytes = 0;
  for (const Item& item : program.items)
    if (item.once) bytes += item_bytes(item, 0);
  return bytes;
}

std::size_t block_bytes(const Checked& program, std::size_t len) {
  std::size_t bytes = 0;
  for (const Item& item : program.items)
    if (!item.once) bytes += item_bytes(item, len);
  return bytes;
}

std::size_t payload_bytes(const Checked& program, std::size_t n) {
  if (program.block == 0) return once_bytes(program) + block_bytes(program, n);
  const std::size_t rest = n % program.block;
  return once_bytes(program) + n / program.block * block_bytes(program, program.block) +
         (rest != 0 ? block_bytes(program, rest) : 0);
}

}  // namespace tithe::lang
