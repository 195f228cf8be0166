// SPDX-License-Identifier: Apache-2.0
#include "lang/front/passes.h"

#include <algorithm>

#include "base/fold.h"

namespace tithe::lang {

namespace {

// Bytes of a table.
std::size_t table_memory(const Node& node, std::size_t block) {
  std::size_t memory = 4 * (node.op == Op::kSort || node.op == Op::kOrder ? block : node.index);
  if (node.op == Op::kOrder) memory += 8 * block + 4;  // scratch for sorting, behind the table
  return (memory + 63) / 64 * 64;
}

bool reduces(Op op) { return op >= Op::kSum; }

// The nodes that `roots` depend on, including the roots; operands of reductions only if `through_reductions`.
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

// The nodes between the reductions and `roots`, split by stage.
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

// The passes that compute the reductions that `roots` depend on. Trailing passes without reductions are dropped.
std::vector<Pass> finding(const Checked& program, const Nodes& roots) {
  const std::vector<bool> need = needed(program, roots, true);
  std::vector<Pass> passes(program.passes);
  for (unsigned p = 1; p <= program.passes; ++p) {
    Nodes found, operands;
    for (std::size_t k = 0; k < program.nodes.size(); ++k) {
      const Node& node = program.nodes[k];
      if (!need[k] || !reduces(node.op) || node.stage == Stage::kAll || node.pass != p) continue;
      found.push_back(static_cast<int>(k));
      if (node.op != Op::kThreshold)
        for (const int from : node.in)
          if (from != kNone) operands.push_back(from);
    }
    passes[p - 1] = in_lists(program, operands);
    passes[p - 1].reduce = std::move(found);
  }
  while (!passes.empty() && passes.back().reduce.empty()) passes.pop_back();
  return passes;
}

// The nodes that are computed once per call after the plan. Nodes of the previous phase's items are in both lists.
Nodes of_all(const Checked& program, bool decode) {
  Nodes nodes;
  for (std::size_t k = 0; k < program.nodes.size(); ++k) {
    const Node& node = program.nodes[k];
    const bool wanted = decode ? node.decode || !node.late : !node.decode;
    if (node.stage == Stage::kAll && wanted && !reduces(node.op)) nodes.push_back(static_cast<int>(k));
  }
  return nodes;
}

}  // namespace

// Works backwards from the nodes that are sent, decoded and checked: only reductions that these need get a pass.
Schedule::Schedule(const Checked& program) {
  const std::size_t count = program.nodes.size();
  Nodes sent, read_roots = {program.result}, check_roots;
  for (const Item& item : program.items) {
    if (item.value != kNone) sent.push_back(item.value);
    read_roots.push_back(item.where);
    check_roots.push_back(item.where);
  }
  sent.push_back(program.pairs.where);
  // The sent values determine the reductions.
  passes = finding(program, sent);
  Nodes operands;
  for (std::size_t k = 0; k < count; ++k)
    if (const Node& node = program.nodes[k]; node.stage == Stage::kAll && reduces(node.op)) {
      looked.reduce.push_back(static_cast<int>(k));
      operands.push_back(node.in[0]);
    }
  if (!looked.reduce.empty()) {
    look = finding(program, operands);
    looked.block = in_lists(program, operands).block;
  }
  all = of_all(program, false);
  all_read = of_all(program, true);
  for (const std::vector<Pass>* some : {&look, &passes})
    for (const Pass& pass : *some) max_found = std::max(max_found, pass.reduce.size());
  for (const Item& item : program.items)
    widths.push_back(item.width == kNone ? Pass{} : in_lists(program, {item.width}));
  send = in_lists(program, sent);
  read = in_lists(program, read_roots);
  check = in_lists(program, check_roots);
  if (program.block != 0) run = std::clamp<std::size_t>(program.block, kFoldLanes, kRun);
  filled.resize(count);
  const auto fill_operands = [&](const Node& node) {
    for (const int from : node.in)
      if (from != kNone && program.node(from).stage != Stage::kValue && !is_table(program.node(from).op))
        filled[static_cast<std::size_t>(from)] = true;
  };
  for (std::size_t k = 0; k < count; ++k) {
    const Node& node = program.nodes[k];
    plan_offset.push_back(8 * plan.size());
    if (node.stage == Stage::kPlan) plan.push_back(static_cast<int>(k));
    if (node.op == Op::kTaken) taken.push_back(static_cast<int>(k));
    if (node.op == Op::kGrad) grad.push_back(static_cast<int>(k));
    if (node.stage == Stage::kValue || (reduces(node.op) && node.op != Op::kThreshold)) fill_operands(node);
    offset.push_back(bytes);
    bytes += is_table(node.op) ? table_memory(node, program.block) : kRun * (node.type == Type::kF64 ? 8 : 4);
    if (node.op == Op::kScan) bytes += 64;  // the sum of the previous runs
  }
  // A node below the value stage that is sent, decoded or selected per value needs a filled array.
  const auto fill = [&](int node) {
    if (node != kNone && program.nodes[static_cast<std::size_t>(node)].stage != Stage::kValue)
      filled[static_cast<std::size_t>(node)] = true;
  };
  for (const Item& item : program.items)
    if (item.array && item.value != kNone) fill(item.value);
  fill(program.result);
  fill(program.pairs.where);
}

bool Checked::varies() const {
  return std::any_of(items.begin(), items.end(), [](const Item& item) {
    return item.coding != Coding::kCodes && item.coding != Coding::kBytes && item.coding != Coding::kInts;
  });
}

std::size_t blocks_together(const Checked& program) {
  if (program.block == 0 || program.block > kRun / 2 || program.varies() || program.sends_pairs) return 0;
  if (!program.before.empty() || program.adds()) return 0;
  for (const Node& node : program.nodes) {
    const bool in_order = (node.op >= Op::kLevel && node.op <= Op::kArgument) || node.op >= Op::kThreshold;
    if (in_order || node.stage == Stage::kAll) return 0;
  }
  return kRun / program.block;
}

bool needs_lookup(const Checked& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(),
                     [](const Node& node) { return node.stage == Stage::kAll && reduces(node.op); });
}

const char* only_interpreted(const Checked& program) {
  for (const Item& item : program.items) {
    if (item.coding == Coding::kWidths || item.coding == Coding::kPlaces || item.coding == Coding::kBytes)
      return "tithe generates C++ for payloads of different lengths only with trits";
    if (item.full != 0) return "tithe generates no C++ for arrays of a whole block";
  }
  if (needs_lookup(program)) return "tithe generates no C++ for programs that read all blocks first";
  return nullptr;
}

unsigned count_bytes(std::size_t block) {
  if (block == 0) return 4;
  return block < 0x100 ? 1 : block < 0x10000 ? 2 : 4;
}

unsigned place_bits(std::size_t block) {
  if (block == 0) return 32;
  unsigned bits = 1;
  while ((block - 1) >> bits != 0) ++bits;
  return bits;
}

// `full` of kPlaces is the block length.
std::size_t item_bytes(const Item& item, std::size_t len) {
  if (item.coding == Coding::kInts) return 0;  // sums are not split into blocks
  if (!item.array) return (item.bits + 7) / 8;
  if (item.coding == Coding::kTrits) return (len + 4) / 5;
  if (item.coding == Coding::kPlaces) return count_bytes(item.full) + (len * place_bits(item.full) + 7) / 8;
  return (std::max(len, item.full) * item.bits + 7) / 8;
}

std::size_t once_bytes(const Checked& program) {
  std::size_t bytes = program.counts ? kCountBytes : 0;
  for (const Item& item : program.items)
    if (item.once) bytes += item_bytes(item, 0);
  return bytes;
}

std::size_t table_bytes(const Item& item, const Checked& program, std::size_t n) {
  if (!item.table) return 0;
  const std::size_t per = item.per != 0 ? item.per : std::max<std::size_t>(program.block, 1);
  return (n + per - 1) / per * item_bytes(item, 1);
}

std::size_t head_bytes(const Checked& program, std::size_t n) {
  std::size_t bytes = once_bytes(program);
  for (const Item& item : program.items) bytes += table_bytes(item, program, n);
  return bytes;
}

std::size_t block_bytes(const Checked& program, std::size_t len) {
  std::size_t bytes = 0;
  for (const Item& item : program.items)
    if (item.in_block()) bytes += item_bytes(item, len);
  return bytes;
}

std::size_t payload_bytes(const Checked& program, std::size_t n) {
  if (program.block == 0) return head_bytes(program, n) + block_bytes(program, n);
  const std::size_t rest = n % program.block;
  return head_bytes(program, n) + n / program.block * block_bytes(program, program.block) +
         (rest != 0 ? block_bytes(program, rest) : 0);
}

}  // namespace tithe::lang
