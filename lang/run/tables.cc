// SPDX-License-Identifier: Apache-2.0
#include "lang/run/tables.h"

#include <algorithm>
#include <cstring>

namespace tithe::lang {

namespace {

std::size_t width_of(const Node& node) { return node.type == Type::kF64 ? 8 : 4; }

std::uint64_t bits_at(const Registers& registers, int k, std::size_t i) {
  std::uint64_t bits = 0;
  const std::size_t width = width_of(registers.node(k));
  std::memcpy(&bits, registers.of<std::uint8_t>(k) + i * width, width);
  return bits;
}
void put_bits(const Registers& registers, int k, std::size_t i, std::uint64_t bits) {
  const std::size_t width = width_of(registers.node(k));
  std::memcpy(registers.of<std::uint8_t>(k) + i * width, &bits, width);
}

}  // namespace

// ---- Tables

void add_to_table(const Registers& registers, int k, std::size_t seen, std::size_t count) {
  const Node& node = registers.node(k);
  const std::uint32_t* v = registers.of<std::uint32_t>(node.in[0]);
  std::uint32_t* table = registers.of<std::uint32_t>(k);
  if (node.op != Op::kHistogram) {
    const Type type = registers.node(node.in[0]).type;
    for (std::size_t i = 0; i < count; ++i) table[seen + i] = key_of(type, v[i]);
    return;
  }
  const std::uint32_t* which = node.in[1] == kNone ? nullptr : registers.of<std::uint32_t>(node.in[1]);
  if (seen == 0) std::fill_n(table, node.index, 0U);
  for (std::size_t i = 0; i < count; ++i)
    if ((which == nullptr || which[i] != 0) && v[i] < node.index) ++table[v[i]];
}

void finish_table(const Registers& registers, int k, std::size_t seen) {
  const Node& node = registers.node(k);
  std::uint32_t* table = registers.of<std::uint32_t>(k);
  if (node.op == Op::kHistogram) {
    if (seen == 0) std::fill_n(table, node.index, 0U);
  } else if (node.op == Op::kSort) {
    std::sort(table, table + seen);
    for (std::size_t i = 0; i < seen; ++i) table[i] = value_of(node.type, table[i]);
  } else {
    auto* all = reinterpret_cast<std::uint64_t*>(table + (seen + 1) / 2 * 2);  // behind the table
    for (std::size_t i = 0; i < seen; ++i) all[i] = std::uint64_t{table[i]} << 32 | i;
    std::sort(all, all + seen);
    for (std::size_t i = 0; i < seen; ++i)
      table[static_cast<std::uint32_t>(all[i])] = static_cast<std::uint32_t>(i);
  }
}

// ---- Reductions with a function of the program, sixteen accumulators

// to[j] = f(to[j], with[j]) for the lanes in `which`. The function's nodes are evaluated on sixteen values at once.
void RunningFold::apply(const Registers& registers, const Node& node, Lanes& to, const Lanes& with,
                        std::span<const bool> which) {
  const Folding& by = registers.folding(node.index);
  for (std::size_t j = 0; j < to.size(); ++j) {
    put_bits(registers, by.left, j, to[j]);
    put_bits(registers, by.right, j, with[j]);
  }
  registers.compute_values(by.body, {}, to.size());
  for (std::size_t j = 0; j < to.size(); ++j)
    if (which[j]) to[j] = bits_at(registers, by.result, j);
}

// Combines halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1 lanes.
std::uint64_t RunningFold::total(const Registers& registers, const Node& node, Lanes lanes) {
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    Lanes upper = lanes;
    bool which[16] = {};
    for (std::size_t j = 0; j < half; ++j) {
      upper[j] = lanes[j + half];
      which[j] = true;
    }
    apply(registers, node, lanes, upper, which);
  }
  return lanes[0];
}

void RunningFold::begin(const Registers& registers, int k) {
  if (begun_) return;
  begun_ = true;
  start_ = bits_at(registers, registers.node(k).in[2], 0);
  piece_.fill(start_);
  pieces_.fill(start_);
}

void RunningFold::add(const Registers& registers, int k, std::size_t count) {
  begin(registers, k);
  const Node& node = registers.node(k);
  const std::uint32_t* counted = node.in[1] == kNone ? nullptr : registers.of<std::uint32_t>(node.in[1]);
  for (std::size_t i = 0; i < count; i += 16) {
    Lanes with;
    with.fill(start_);
    bool which[16] = {};
    for (std::size_t j = 0; j < 16 && i + j < count; ++j) {
      which[j] = counted == nullptr || counted[i + j] != 0;
      if (which[j]) with[j] = bits_at(registers, node.in[0], i + j);
    }
    apply(registers, node, piece_, with, which);
  }
}

void RunningFold::end_piece(const Registers& registers, int k) {
  const Node& node = registers.node(k);
  Lanes with = pieces_;
  bool which[16] = {};
  const std::size_t lane = pieces_seen_++ % 16;
  with[lane] = total(registers, node, piece_);
  which[lane] = true;
  apply(registers, node, pieces_, with, which);
  piece_.fill(start_);
}

void RunningFold::finish(const Registers& registers, int k) {
  begin(registers, k);
  put_bits(registers, k, 0, total(registers, registers.node(k), pieces_));
}

}  // namespace tithe::lang
