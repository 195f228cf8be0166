// SPDX-License-Identifier: Apache-2.0
#pragma once
// The SIMD kernels of the sparsifiers. The comments give the scalar meaning of each, and the tests compare them with
// it. Lists are written in whole vectors: up to kSlack elements past their end may be overwritten.
#include <cstddef>
#include <cstdint>

#include "codec/shared/sparse/select.h"
#include "tithe/seam/codec.h"

namespace tithe::select {

inline constexpr std::size_t kSlack = 64;

struct Found {
  std::size_t count;
  std::uint32_t peak;  // largest magnitude seen
};

// Lists index and value of each value in [start, start + length) whose magnitude is >= threshold, in order.
// residual_out becomes +0 at listed indices and the taken value elsewhere. index and value hold length + kSlack
// elements.
Found collect(const EncodeInput& in, std::size_t start, std::size_t length, std::uint32_t threshold,
              std::uint32_t* index, float* value);

// Writes the sampled values to `seen`, in order; it holds sample.count() elements.
void take_sample(const Sample& sample, std::uint64_t key, const EncodeInput& in, float* seen);

// The k-th largest magnitude (1 <= k <= n) of n values whose magnitudes are all >= floor. work holds n + kSlack
// elements and may be the value array itself, which is then overwritten.
std::uint32_t kth_largest(const float* value, std::size_t n, std::size_t k, std::uint32_t floor,
                          std::uint32_t* work);

// Selects the elements of magnitude > threshold and the first `ties` of magnitude == threshold, k in all. Writes their
// indices and values to to_index and to_value, in order and not a byte further; writes the other values to residual_out
// at their indices, unless it is nullptr. The targets are little-endian, need no alignment, and may be the lists.
void cut(std::uint32_t threshold, std::size_t ties, std::size_t k, std::size_t n, const std::uint32_t* index,
         const float* value, std::uint8_t* to_index, std::uint8_t* to_value, float* residual_out);

// How many of n values have a magnitude > threshold.
std::size_t count_above(const float* value, std::size_t n, std::uint32_t threshold);

}  // namespace tithe::select
