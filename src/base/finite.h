// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finite or not, by bits: -ffast-math cannot fold it away, and every backend agrees.
#include <bit>
#include <cstdint>

namespace tithe {
inline bool is_finite(float v) { return (std::bit_cast<std::uint32_t>(v) & 0x7f800000U) != 0x7f800000U; }
}  // namespace tithe
