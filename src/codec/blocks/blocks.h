// SPDX-License-Identifier: Apache-2.0
#pragma once
// blocks: blocks of 256 values that hold something other than zero, whole (OmniReduce: Fei et al., SIGCOMM 2021).
// With a ratio below 1, only that share of all blocks: those of the largest squared norm, the lower one first among
// equals.
//
// Layout   u8 values: how they are written (codec/sparse/sparse_values.h)
//          one bit per block, lowest bit first, 1 = sent; bits past the last block are 0
//          value array of the blocks that are sent, in order; the last block may be shorter
// Places are always that bitmap: where one block in a hundred is sent, it is a hundredth of the payload.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tithe/codec.h"

namespace tithe {
extern const Codec blocks_codec;
}

namespace tithe::blocks {

inline constexpr std::size_t kBlock = 256;

inline std::size_t count(std::size_t n) { return (n + kBlock - 1) / kBlock; }
inline std::size_t length(std::size_t n, std::size_t block) { return std::min(kBlock, n - block * kBlock); }

// What a block holds: its largest magnitude as an integer, and the sum of its squares in the shape of base/fold.h.
struct Held {
  std::uint32_t largest = 0;
  double squares = 0;
};

// Leaves all blocks of `in` whole, and says what each holds; squares only if asked for.
void look(const Carry& in, bool squares, Held* held);

// out[i] = (base[i] + p0[i] + p1[i] + ...) / divide for the values of one block, which each of `sent` holds: without a
// base the sum begins with 0.
void merge_sent(std::span<const std::uint8_t* const> sent, const float* base, float divide,
                std::span<float> out);

}  // namespace tithe::blocks
