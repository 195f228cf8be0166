// SPDX-License-Identifier: Apache-2.0
#pragma once
// The vector kernels of the sparsifiers. Each has an obvious scalar meaning, given here; the tests hold them to it.
// Lists are written in whole vectors: kSlack elements past their end may be overwritten.
#include <cstddef>
#include <cstdint>

#include "codec/sparse/select.h"
#include "tithe/codec.h"

namespace tithe::select {

inline constexpr std::size_t kSlack = 64;

struct Found {
  std::size_t count;
  std::uint32_t peak;  // largest magnitude seen
};

// Lists index and value of each value of [start, start + length) whose magnitude is >= threshold, in order. What is
// left becomes +0 there and the value itself elsewhere. index and value hold length + kSlack elements.
Found collect(const Carry& in, std::size_t start, std::size_t length, std::uint32_t threshold,
              std::uint32_t* index, float* value);

// The values of a sample, in order: seen holds sample.count() elements.
void take_sample(const Sample& sample, std::uint64_t key, const Carry& in, float* seen);

// The k-th largest magnitude (1 <= k <= n) of n values, none of which has a lower one than floor. work holds n + kSlack
// elements and may be the values themselves, which are lost then.
std::uint32_t kth_largest(const float* value, std::size_t n, std::size_t k, std::uint32_t floor,
                          std::uint32_t* work);

// Writes the k elements of magnitude > threshold, or equal to it and among the first `ties` that are, in order to
// to_index and to_value, and not a byte behind them; the values of all others go back to left (if there is one). The
// targets are little-endian and need no alignment, and each may be the list itself.
void cut(std::uint32_t threshold, std::size_t ties, std::size_t k, std::size_t n, const std::uint32_t* index,
         const float* value, std::uint8_t* to_index, std::uint8_t* to_value, float* left);

// How many values of the list have a magnitude > threshold.
std::size_t count_above(const float* value, std::size_t n, std::uint32_t threshold);

}  // namespace tithe::select
