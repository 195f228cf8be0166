// SPDX-License-Identifier: Apache-2.0
#pragma once
// When the nodes of a checked program are computed, and where their values are stored.
//
// Values are computed in runs of kRun, node after node: each node has an array of kRun values. For a node that is
// computed once per block or call, the array is filled with its value if a value-stage node reads it. A pass reads a
// block run by run and ends in its reductions.
#include "lang/front/checked.h"

namespace tithe::lang {

inline constexpr std::size_t kRun = 1024;
inline constexpr std::size_t kPiece = 8192;  // values per partial result of a reduction (lang/run/reduce.h)
static_assert(kPiece % kRun == 0);
inline constexpr std::size_t kMaxSorted = 8192;  // maximum block length for sort and rank
inline constexpr double kMaxEntries = 4096;      // maximum size of a histogram

using Nodes = std::vector<int>;  // in topological order

struct Pass {
  Nodes block;   // once for a block, before the pass
  Nodes value;   // per value
  Nodes reduce;  // the reductions of this pass
};

struct Schedule {
  Nodes plan;
  Nodes taken, grad;       // all kTaken nodes; all kGrad nodes
  std::vector<Pass> look;  // over each block, before the first block is sent
  Pass looked;             // then once per block; `reduce` holds the reductions over all blocks
  Nodes all;               // nodes of stage all, for encode
  Nodes all_read;          // nodes of stage all, for decode
  std::vector<Pass> passes;
  std::size_t max_found = 0;             // maximum number of reductions in one pass
  Pass send;                             // the last pass over a block, which has no reductions
  Pass read;                             // from items to values, and the items' `where` conditions
  Pass check;                            // only the items' `where` conditions
  std::vector<Pass> widths;              // per item: the width of each of its codes
  std::vector<bool> filled;              // per node: its array is filled with one value
  std::vector<std::size_t> offset;       // per node: byte offset of its array
  std::vector<std::size_t> plan_offset;  // likewise for plan nodes alone, which take 8 bytes each
  std::size_t bytes = 0;                 // of all arrays
  std::size_t run = kRun;                // maximum values per run

  explicit Schedule(const Checked& program);
};

// Payload bytes of a program's items, the maximum if the size varies: of the items sent once, of one table, of a
// block of `len` values, and of one item.
std::size_t once_bytes(const Checked& program);
std::size_t table_bytes(const Item& item, const Checked& program, std::size_t n);
std::size_t block_bytes(const Checked& program, std::size_t len);
std::size_t item_bytes(const Item& item, std::size_t len);
// All bytes before the first block.
std::size_t head_bytes(const Checked& program, std::size_t n);
// Size of the rank count at the start of a payload, in programs that send it.
inline constexpr std::size_t kCountBytes = 2;
// For programs that send neither pairs nor sums.
std::size_t payload_bytes(const Checked& program, std::size_t n);

// Bytes of the count and bits of an index of kPlaces, in blocks of `block` values (0: unlimited).
unsigned count_bytes(std::size_t block);
unsigned place_bits(std::size_t block);

// The number of blocks that the interpreter encodes together in one run; 0 if it encodes one block at a time.
std::size_t blocks_together(const Checked& program);

// True if a reduction over all blocks is needed before the first block is sent.
bool needs_lookup(const Checked& program);

// The reason why a phase is not compiled to C++; nullptr if it is. Lists have kernels of their own (pairs.h,
// indices.h).
const char* only_interpreted(const Checked& program);

}  // namespace tithe::lang
