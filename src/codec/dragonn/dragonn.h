// SPDX-License-Identifier: Apache-2.0
#pragma once
// dragonn: sends values at or above a sampled threshold; a hash table instead of a sort limits their number (Wang et
// al., "DRAGONN: Distributed Randomized Approximate Gradients of Neural Networks", 2022).
//
// The values are cut into blocks of kBlock. A candidate is a value that reaches the threshold. In each block every
// candidate writes its index into a slot,
//   slot(i) = fmix32(i ^ key) * slots_of_block / 2^32        (finaliser of MurmurHash3; a new key each round)
// and the last writer, the highest index, keeps the slot. These values are sent; the others stay in the residual and
// collide with other candidates in the next round. On average m (1 - (1 - 1/m)^c) of c candidates in m slots are sent:
// 88 % for m = 4 c. The number of slots bounds the payload, even if the threshold is far off.
// Unlike in the published code, the table is local to a block, so it stays in cache and the indices come out in order;
// and index 0 is treated like any other index.
//
// Layout   codec/shared/sparse/sparse.h, at most min(length, slots) pairs of each block
#include <cstddef>
#include <cstdint>

#include "tithe/seam/codec.h"
#include "tithe/seam/hd.h"

namespace tithe {
extern const Codec dragonn_codec;
}

namespace tithe::dragonn {

// The finaliser of MurmurHash3 (A. Appleby, public domain), 32-bit form.
TITHE_HD inline std::uint32_t fmix32(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6bU;
  h ^= h >> 13;
  h *= 0xc2b2ae35U;
  return h ^ h >> 16;
}

// The slot of candidate `index` in a table of `slots` slots.
TITHE_HD inline std::uint32_t slot_of(std::uint32_t index, std::uint32_t key, std::uint32_t slots) {
  return static_cast<std::uint32_t>(std::uint64_t{fmix32(index ^ key)} * slots >> 32);
}

// slot[j] = slot_of(index[j], key, slots)
void hash(const std::uint32_t* index, std::size_t n, std::uint32_t key, std::uint32_t slots,
          std::uint32_t* slot);

}  // namespace tithe::dragonn
