// SPDX-License-Identifier: Apache-2.0
#pragma once
// How packed payloads of sparsifiers are laid out: what those who write and those who read them share. Places are coded
// as gaps: the zeros between a sent value and the one before it. Where values are sent at random places, gaps are
// geometric, and the Rice code of 2^b near 0.69 of their mean is within a few hundredths of a bit of the best prefix
// code (Rice and Plaunt 1971; Gallager and Van Voorhis 1975).
//
//   gap   = q 2^b + r   is written as q zeros, a one, and the b bits of r; first bit lowest
//
// From about a quarter of the values on a bitmap is as short, and its places need no arithmetic.
#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/sparse/sparse.h"

namespace tithe::sparse {

enum Offset : std::size_t {
  kAtCount = 4,
  kAtValues = 8,
  kAtIndices = 9,
  kAtRice = 10,
  kAtZero = 11,
  kPackedHead = 12
};

// b for `count` of n values: a function of what both ends know.
inline unsigned rice_bits(std::size_t count, std::size_t n) {
  if (count == 0) return 0;
  const std::uint64_t mean = (std::uint64_t{n} - count) * 177 / 256 / count;  // 177/256: ln 2
  return mean == 0 ? 0 : static_cast<unsigned>(std::bit_width(mean)) - 1;
}

// Bytes of the places of `count` of n values; of gaps, the most that they can take.
inline std::size_t place_bytes(IndexForm form, std::size_t count, std::size_t n) {
  if (form == IndexForm::kU32) return 4 * count;
  if (form == IndexForm::kBitmap) return (n + 7) / 8;
  if (count == 0) return 0;
  const unsigned b = rice_bits(count, n);
  return (count * (b + 1) + ((n - count) >> b) + 7) / 8;
}

}  // namespace tithe::sparse
