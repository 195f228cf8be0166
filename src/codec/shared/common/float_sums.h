// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of payloads that are arrays of floats.
#include <algorithm>
#include <bit>
#include <span>

#include "base/bytes.h"
#include "tithe/seam/codec.h"

namespace tithe::sums {

// Zeroes both after a sum that is not finite. The NaN that results from two NaNs depends on the processor, but
// payloads and residuals must be equal on all machines.
inline void clear(Bytes acc, std::span<float> residual_out) {
  std::fill(acc.begin(), acc.end(), std::uint8_t{0});
  std::fill(residual_out.begin(), residual_out.end(), 0.0F);
}

// acc += in, arrays of f32. True if all sums are finite; otherwise clears acc.
inline bool add(Bytes acc, ByteView in) {
  std::uint32_t most = 0;
  for (std::size_t at = 0; at < acc.size(); at += 4) {
    const float sum = wire::get<float>(&acc[at]) + wire::get<float>(&in[at]);
    most = std::max(most, std::bit_cast<std::uint32_t>(sum) & 0x7fffffffU);
    wire::put(&acc[at], sum);
  }
  const bool finite = most < 0x7f800000U;
  if (!finite) clear(acc, {});
  return finite;
}

}  // namespace tithe::sums
