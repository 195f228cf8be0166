// SPDX-License-Identifier: Apache-2.0
#pragma once
// blocks: sends whole blocks of 256 values, and omits blocks of zeros (OmniReduce: Fei et al., SIGCOMM 2021). With a
// ratio below 1 it sends at most that share of all blocks: the blocks with the largest squared norm, the lower index
// first among equals.
//
// Layout   u8 form of the value array (codec/shared/sparse/sparse_values.h)
//          one bit per block, lowest bit first, 1 = sent; bits past the last block are 0
//          value array of the blocks that are sent, in order; the last block may be shorter
// Block indices are always a bitmap: it is 1 % of the payload even if only one block in a hundred is sent.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec blocks_codec;
}

namespace tithe::blocks {

inline constexpr std::size_t kBlock = 256;

inline std::size_t count(std::size_t n) { return (n + kBlock - 1) / kBlock; }
inline std::size_t length(std::size_t n, std::size_t block) { return std::min(kBlock, n - block * kBlock); }

// Statistics of a block: the bits of its largest magnitude, and its sum of squares in the order of base/fold.h.
struct Stats {
  std::uint32_t largest = 0;
  double squares = 0;
};

// Copies the taken values to in.residual_out (unless nullptr), and writes the statistics of each block; sums squares
// only if `squares` is set.
void measure(const EncodeInput& in, bool squares, Stats* stats);

// out[i] = (base[i] + p0[i] + p1[i] + ...) / divide for one block; sent[k] points to its values in payload k. Without a
// base the sum starts from 0.
void merge_sent(std::span<const std::uint8_t* const> sent, const float* base, float divide,
                std::span<float> out);

}  // namespace tithe::blocks
