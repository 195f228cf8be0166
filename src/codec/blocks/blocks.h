// SPDX-License-Identifier: Apache-2.0
#pragma once
// The vector kernels of blocks.cc, and what both sides know.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tithe/codec.h"

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
