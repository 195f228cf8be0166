// SPDX-License-Identifier: Apache-2.0
#pragma once
// For codecs whose sent indices do not depend on the values: all values are written to residual_out, segment by
// segment, and the sent ones are picked from the segment while it is in the cache.
#include <algorithm>
#include <cstddef>

#include "codec/shared/common/block.h"
#include "tithe/seam/codec.h"

namespace tithe::codec {

// Values per segment: few enough for the L1 cache, and for short picks, during which prefetching keeps memory busy.
inline constexpr std::size_t kSegment = 1024;

// Writes all taken values to residual_out, unless it is nullptr. True if all are finite.
bool store_residuals(const EncodeInput& in);

// store_residuals, segment by segment; calls pick(end) after each segment. pick may send any value below `end`: it
// reads it as encoded_value(in, i) and sets in.residual_out[i] to 0, unless residual_out is nullptr.
template <typename Pick>
bool store_residuals_and_pick(const EncodeInput& in, Pick pick) {
  bool finite = true;
  for (std::size_t start = 0; start < in.n; start += kSegment) {
    const std::size_t end = std::min(start + kSegment, in.n);
    finite = store_residuals(block::part(in, start, end - start)) && finite;
    pick(end);
  }
  return finite;
}
// The taken value i, after store_residuals.
inline float encoded_value(const EncodeInput& in, std::size_t i) {
  return in.residual_out ? in.residual_out[i] : in.value(i);
}

}  // namespace tithe::codec
