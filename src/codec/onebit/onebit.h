// SPDX-License-Identifier: Apache-2.0
#pragma once
// onebit: one sign bit per value, and per block one mean per sign (Seide et al., 2014).
//
// Layout   per block of kBlock values (the last one may be shorter), back to back:
//          f32 mean of the negatives | f32 mean of the others | ceil(len/8) sign bits, LSB first, 1 = not negative
//          the mean of no values is 0; bits past len are 0
// Why means, not +-1: they minimise the squared error of two levels, so the residual is as small as one bit per value
// allows. Why blocks: a block fits in the L1 cache, so exact means and the residual cost one pass over memory; and
// local means follow the different scales of layers.
#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/finite.h"
#include "base/fold.h"
#include "codec/shared/common/block.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec onebit_codec;
}

namespace tithe::onebit {

inline constexpr std::size_t kBlock = 2048;
inline constexpr std::size_t kHead = 8;
inline constexpr std::size_t kBlockBytes = kHead + kBlock / 8;

inline std::size_t block_bytes(std::size_t len) { return kHead + (len + 7) / 8; }
inline std::size_t bound(const Settings&, std::size_t n) {
  return n / kBlock * kBlockBytes + (n % kBlock ? block_bytes(n % kBlock) : 0);
}

// -0 counts as positive. A NaN counts as negative; encode reports it.
inline bool up(float v) { return v >= 0.0F; }

// A sum that overflowed counts as the largest float: the mean is always finite.
inline float mean(float sum, std::size_t count) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return count == 0 ? 0.0F : std::clamp(sum, -kMax, kMax) / static_cast<float>(count);
}

// Value i of a block.
inline float value_of(const std::uint8_t* block, std::size_t i) {
  return wire::get<float>(block + 4 * (block[kHead + i / 8] >> (i % 8) & 1U));
}

// kCorrupt for a size or a mean that encode cannot have written, or for a set padding bit.
Status check(const Call&, std::size_t n, ByteView payload);

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // onebit_simd.cc

}  // namespace tithe::onebit
