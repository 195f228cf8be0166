// SPDX-License-Identifier: Apache-2.0
#pragma once
// When the nodes of a checked program are computed, and where their values stand.
//
// Values are computed in runs of kRun, node after node: each node has an array of kRun values, and one that is
// computed once for a block or a call has it filled where values read it. A pass reads a block run by run and ends in
// its reductions.
#include "lang/front/checked.h"

namespace tithe::lang {

inline constexpr std::size_t kRun = 1024;
inline constexpr std::size_t kPiece = 8192;  // values that are found together (lang/run/reduce.h)
static_assert(kPiece % kRun == 0);
inline constexpr std::size_t kMostSorted = 8192;  // values of a block that is sorted
inline constexpr double kMostEntries = 4096;      // of a histogram

using Nodes = std::vector<int>;  // in order

struct Pass {
  Nodes block;   // once for a block, before the pass
  Nodes value;   // of each value
  Nodes reduce;  // what the pass finds
};

struct Schedule {
  Nodes plan;
  Nodes taken, grad;       // the nodes that are these
  std::vector<Pass> look;  // over each block, before the first one is sent
  Pass looked;             // then once for a block; `reduce`: what is found of all blocks
  Nodes all;               // of that, once for a call
  Nodes all_read;          // of what was sent once
  std::vector<Pass> passes;
  std::size_t most_found = 0;            // by one pass
  Pass send;                             // the last pass over a block; nothing is reduced
  Pass read;                             // what was sent to values; with what must hold of it
  Pass check;                            // what must hold of what was sent, alone
  std::vector<Pass> widths;              // per item: the bits of each of its codes
  std::vector<bool> filled;              // per node: its array is filled
  std::vector<std::size_t> offset;       // per node: bytes to its array
  std::vector<std::size_t> plan_offset;  // the same of the plan alone, whose nodes take 8 bytes each
  std::size_t bytes = 0;                 // of all arrays
  std::size_t run = kRun;                // values that a run has at most

  explicit Schedule(const Checked& program);
};

// Bytes that a payload's items need, the most where they vary: of those that are sent once, of the tables, and of a
// block of len values.
std::size_t once_bytes(const Checked& program);
std::size_t table_bytes(const Item& item, const Checked& program, std::size_t n);
std::size_t block_bytes(const Checked& program, std::size_t len);
std::size_t item_bytes(const Item& item, std::size_t len);
// In front of the blocks.
std::size_t head_bytes(const Checked& program, std::size_t n);
// How many ranks a payload is of, where it says so.
inline constexpr std::size_t kCountBytes = 2;
// The size for a program that sends no pairs and no sums.
std::size_t payload_bytes(const Checked& program, std::size_t n);

// Sizes for kPlaces, in blocks of so many values (0: any number of them).
unsigned count_bytes(std::size_t block);
unsigned place_bits(std::size_t block);

// Blocks of which a run has room for several, and that the interpreter can encode at a time: how many; 0: none.
std::size_t blocks_together(const Checked& program);

// True if something is found of all blocks before the first one is sent.
bool looks_first(const Checked& program);

// Why a phase is not made C++ of; nullptr: it is. Lists have kernels of their own (pairs.h, indices.h).
const char* only_interpreted(const Checked& program);

}  // namespace tithe::lang
