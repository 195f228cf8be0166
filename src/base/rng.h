// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counter-based random numbers: a draw is a pure function of a key and an index. So any thread, instruction set and
// backend draws the same numbers in any order, and there is no state.
#include <cstdint>

#include "tithe/seam/hd.h"

namespace tithe {

// The finaliser of MurmurHash3 (A. Appleby, public domain): a bijection of 64 bits with full avalanche.
TITHE_HD inline std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

// 32-bit form: two multiplications, cheap in SIMD lanes ("lowbias32", C. Wellons).
TITHE_HD inline std::uint32_t mix32(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

// The key of one encode: all inputs except the index.
TITHE_HD inline std::uint64_t rng_key(std::uint64_t seed, std::uint32_t round, std::uint32_t tensor,
                                      std::uint16_t chunk, std::uint8_t phase) {
  std::uint64_t k = mix64(seed + 0x9e3779b97f4a7c15ULL);
  k = mix64(k ^ (std::uint64_t{round} << 32 | tensor));
  return mix64(k ^ (std::uint64_t{chunk} << 8 | phase));
}

// 32 random bits for value `index`.
TITHE_HD inline std::uint32_t draw32(std::uint64_t key, std::uint32_t index) {
  return mix32(static_cast<std::uint32_t>(key) ^ mix32(index ^ static_cast<std::uint32_t>(key >> 32)));
}

// Like draw32() at half the cost, for kernels that draw for every value: the upper 16 bits are random, the 8 bits below
// them nearly so. For each key a bijection of the index.
inline constexpr std::uint32_t kHighFirst = 0x7feb352dU;
inline constexpr std::uint32_t kHighSecond = 0x846ca68bU;
TITHE_HD inline std::uint32_t draw_high(std::uint64_t key, std::uint32_t index) {
  std::uint32_t x = index ^ static_cast<std::uint32_t>(key);
  x ^= x >> 16;
  x *= kHighFirst;
  x ^= x >> 15 ^ static_cast<std::uint32_t>(key >> 32);
  return x * kHighSecond;
}

// Half the cost again: two draws of up to 23 bits from one word, for kernels that run at memory speed. Values i and i +
// 16 of each 32 share a word, so vectors of 4, 8 or 16 lanes can use it directly. Each draw by itself is uniform in all
// its bits. The two draws share 2 bits - 32 of the word's bits: the last ones of the upper draw are mixed with the
// first ones of the lower draw.
TITHE_HD inline std::uint32_t draw_word(std::uint64_t key, std::uint32_t j) {
  std::uint32_t x = j + static_cast<std::uint32_t>(key);
  x ^= x >> 16;
  x *= kHighFirst;
  x ^= x >> 15 ^ static_cast<std::uint32_t>(key >> 32);
  return x * kHighSecond;
}
TITHE_HD inline std::uint32_t draw_half(std::uint64_t key, std::uint32_t index, int bits) {
  const std::uint32_t word = draw_word(key, (index >> 5 << 4) + (index & 15U));
  const std::uint32_t upper = word >> (32 - bits);
  return (index & 16U) == 0 ? upper : (word ^ upper) & ((std::uint32_t{1} << bits) - 1);
}

}  // namespace tithe
