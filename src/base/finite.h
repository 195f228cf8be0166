// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tests for finite values by their bits, which -ffast-math cannot optimize away and which all backends share.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace tithe {
inline bool is_finite(float v) { return (std::bit_cast<std::uint32_t>(v) & 0x7f800000U) != 0x7f800000U; }

// The maximum of the bits, a form that compilers vectorize.
inline bool all_finite(std::span<const float> v) {
  std::int32_t peak = 0;
  for (const float x : v) peak = std::max(peak, std::bit_cast<std::int32_t>(x) & 0x7fffffff);
  return peak < 0x7f800000;
}
}  // namespace tithe
