// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layout of packed payloads, for their writers and readers. IndexForm::kDelta codes indices as gaps: the number of
// unsent values between one sent value and the next. If the sent indices are random, gaps have a geometric
// distribution, and the Rice code with 2^b near 0.69 of their mean is within a few hundredths of a bit of the best
// prefix code (Rice and Plaunt 1971; Gallager and Van Voorhis 1975).
//
//   gap   = q 2^b + r   is written as q zeros, a one, and the b bits of r, lowest bit first
//
// A bitmap is as short once about a quarter of the values is sent, and reading it needs no arithmetic.
#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/shared/sparse/sparse.h"

namespace tithe::sparse {

enum Offset : std::size_t {
  kAtCount = 4,
  kAtValues = 8,
  kAtIndices = 9,
  kAtRice = 10,
  kAtZero = 11,
  kPackedHead = 12
};

// The Rice parameter b for `count` of n values; writer and reader compute the same one.
inline unsigned rice_bits(std::size_t count, std::size_t n) {
  if (count == 0) return 0;
  const std::uint64_t mean = (std::uint64_t{n} - count) * 177 / 256 / count;  // 177/256: ln 2
  return mean == 0 ? 0 : static_cast<unsigned>(std::bit_width(mean)) - 1;
}

// Bytes of the index stream for `count` of n values; for gaps, an upper bound.
inline std::size_t index_bytes(IndexForm form, std::size_t count, std::size_t n) {
  if (form == IndexForm::kU32) return 4 * count;
  if (form == IndexForm::kBitmap) return (n + 7) / 8;
  if (count == 0) return 0;
  const unsigned b = rice_bits(count, n);
  return (count * (b + 1) + ((n - count) >> b) + 7) / 8;
}

}  // namespace tithe::sparse
