// SPDX-License-Identifier: Apache-2.0
#pragma once
// One pass over the values for all sparsifiers: what reaches a bound is listed, everything else is left, and what
// the exact choice then drops goes back. Every choice is that of codec/sparse/select.h.
#include <cstddef>
#include <cstdint>

#include "codec/sparse/select.h"
#include "codec/sparse/select_simd.h"

namespace tithe::select {

// Values per dispatched call, so that a list that is about to overflow is noticed in time.
inline constexpr std::size_t kSegment = 65536;

// The scratch of one encode: a list of candidates and a work array for order statistics.
struct Lists {
  std::uint32_t* index;
  float* value;
  std::uint32_t* work;
  std::size_t capacity;
};

// Lists for up to `candidates` candidates besides one segment, and for a sample. at(bytes) is where they lie.
struct Layout {
  std::size_t capacity;
  std::size_t work;  // elements
  std::size_t list_bytes() const;
  std::size_t bytes() const;
  Lists at(Bytes scratch) const;
};
Layout layout(std::size_t n, std::size_t candidates, const Sample& sample);

// The `rank`-th largest sampled magnitude, at least 1: equals threshold_ref with its rank.
std::uint32_t threshold_simd(const Sample& sample, std::uint64_t key, std::size_t rank, const Carry& in,
                             std::uint32_t* work);

struct Gathered {
  std::size_t count;  // pairs sent; where no value was dropped, the lists still hold them
  Encoded encoded;
};

// Sends the values of magnitude >= threshold. When they are more than `most`, only the k largest of them are sent, the
// lower index first among equals, where k <= most <= capacity - kSegment (or capacity >= n); the rest is left.
Gathered gather(const Carry& in, std::uint32_t threshold, std::size_t k, std::size_t most, const Lists& lists,
                Bytes out);

}  // namespace tithe::select
