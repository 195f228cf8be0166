// SPDX-License-Identifier: Apache-2.0
#pragma once
// Payloads that are arrays of floats, added up.
#include <algorithm>
#include <bit>
#include <span>

#include "base/bytes.h"
#include "tithe/codec.h"

namespace tithe::sums {

// After a sum that is not finite: which of two NaNs comes of them is up to the processor, so no bit may depend on it.
inline void clear(Bytes acc, std::span<float> left) {
  std::fill(acc.begin(), acc.end(), std::uint8_t{0});
  std::fill(left.begin(), left.end(), 0.0F);
}

// acc += in, arrays of f32. True if all sums are finite; otherwise they are cleared.
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
