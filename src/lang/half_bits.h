// SPDX-License-Identifier: Apache-2.0
#pragma once
// Binary16 (IEEE 754) and back, from bits to bits: ties to even, infinity beyond the largest; subnormals are kept. A
// NaN keeps its sign and its leading bits, and is quiet: what processors' own conversions do.
#include <bit>
#include <cstdint>

namespace tithe::lang {

inline std::uint32_t half_bits(std::uint32_t v) {
  constexpr std::uint32_t kInfinity = 0x7f800000, kNormal = 0x38800000, kRebias = 112U << 23;
  const std::uint32_t size = v & 0x7fffffffU, sign = v >> 16 & 0x8000U;
  if (size > kInfinity) return sign | 0x7e00U | (size >> 13 & 0x3ffU);
  // Below 2^-14 the last bit stands for 2^-24, as does that of 0.5F: adding 0.5F rounds.
  if (size < kNormal)
    return sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - 0x3f000000U);
  const std::uint32_t rounded = (size - kRebias + 0xfffU + (size >> 13 & 1U)) >> 13;
  return sign | (rounded < 0x7c00U ? rounded : 0x7c00U);
}

// h: 16 bits.
inline std::uint32_t from_half_bits(std::uint32_t h) {
  const std::uint32_t size = h & 0x7fffU, sign = (h & 0x8000U) << 16;
  if (size > 0x7c00U) return sign | 0x7fc00000U | size << 13;
  if (size == 0x7c00U) return sign | 0x7f800000U;
  if (size >= 0x400U) return sign | ((size << 13) + (112U << 23));
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-24F);
}

}  // namespace tithe::lang
