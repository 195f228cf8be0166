// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finite or not, by bits: -ffast-math cannot fold it away, and every backend agrees.
#include <bit>
#include <cstdint>
#include <span>

namespace tithe {
inline bool is_finite(float v) { return (std::bit_cast<std::uint32_t>(v) & 0x7f800000U) != 0x7f800000U; }
inline bool all_finite(std::span<const float> v) {
  bool finite = true;
  for (const float x : v) finite = finite && is_finite(x);
  return finite;
}
}  // namespace tithe
