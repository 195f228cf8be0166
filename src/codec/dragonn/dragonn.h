// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>

#include "tithe/hd.h"

namespace tithe::dragonn {

// The finaliser of MurmurHash3 (A. Appleby, public domain), 32-bit form.
TITHE_HD inline std::uint32_t fmix32(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6bU;
  h ^= h >> 13;
  h *= 0xc2b2ae35U;
  return h ^ h >> 16;
}

// Where candidate `index` writes itself in a table of `slots` slots.
TITHE_HD inline std::uint32_t slot_of(std::uint32_t index, std::uint32_t key, std::uint32_t slots) {
  return static_cast<std::uint32_t>(std::uint64_t{fmix32(index ^ key)} * slots >> 32);
}

// slot[j] = slot_of(index[j], key, slots)
void hash(const std::uint32_t* index, std::size_t n, std::uint32_t key, std::uint32_t slots,
          std::uint32_t* slot);

}  // namespace tithe::dragonn
