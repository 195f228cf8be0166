// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fast selection of all sparsifiers, in one pass over the values: values that reach a threshold become candidates,
// all others go to residual_out. Candidates that the exact selection then drops go to residual_out too. Selects the
// same values as codec/shared/sparse/select.h.
#include <cstddef>
#include <cstdint>

#include "codec/shared/sparse/select.h"
#include "codec/shared/sparse/select_simd.h"

namespace tithe::select {

// Values per dispatched call: few enough to notice in time that the candidate list would overflow.
inline constexpr std::size_t kSegment = 65536;

// The scratch of one encode: a list of candidates and a work array for order statistics.
struct Lists {
  std::uint32_t* index;
  float* value;
  std::uint32_t* work;
  std::size_t capacity;
};

// The sizes of Lists for `candidates` candidates plus one segment, and for a sample. at(scratch) returns them.
struct Layout {
  std::size_t indices;  // elements of Lists::index
  std::size_t capacity;
  std::size_t work;  // elements
  std::size_t index_bytes() const;
  std::size_t value_bytes() const;
  std::size_t bytes() const;
  Lists at(Bytes scratch) const;
};
Layout layout(std::size_t n, std::size_t candidates, const Sample& sample);
// The indices of one segment, n values, and the sample: for an encode that may send every value.
Layout layout_of_all(std::size_t n, const Sample& sample);

// The rank-th largest sampled magnitude, as its bits and at least 1; equals threshold_ref for the same rank.
std::uint32_t threshold_simd(const Sample& sample, std::uint64_t key, std::size_t rank, const EncodeInput& in,
                             std::uint32_t* work);

struct Gathered {
  std::size_t count;  // pairs sent; if no candidate was dropped, the lists still hold them
  Encoded encoded;
};

// Sends the values of magnitude >= threshold. If these are more than `most`, sends only the k largest of them (the
// lower index first among equals). All others go to residual_out. Requires k <= most, and most <= capacity - kSegment
// or capacity >= n.
Gathered gather(const EncodeInput& in, std::uint32_t threshold, std::size_t k, std::size_t most,
                const Lists& lists, Bytes out);

}  // namespace tithe::select
