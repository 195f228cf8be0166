// SPDX-License-Identifier: Apache-2.0
#pragma once
// IEEE 754 binary16, rounded to nearest even. Used by the codec fp16 and by sparsifiers (values=fp16).
//
// Magnitudes up to 2^-25 become zero, magnitudes above 65504 become 65504.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

#include "tithe/seam/hd.h"

namespace tithe::fp16 {

inline constexpr std::uint32_t kLargest = 0x477fe000;  // 65504 as fp32
inline constexpr std::uint32_t kNormal = 0x38800000;   // 2^-14, the smallest normal binary16, as fp32
inline constexpr std::uint32_t kRebias = (127U - 15U) << 23;

struct Format {
  static constexpr std::string_view kName = "fp16";
  TITHE_HD static std::uint16_t pack(float v) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    const std::uint32_t mag = std::min(bits & 0x7fffffffU, kLargest);
    // Below 2^-14 the last bit has the value 2^-24, like the last bit of 0.5F, so adding 0.5F rounds.
    const std::uint32_t h =
        mag >= kNormal ? (mag - kRebias + 0xfffU + (mag >> 13 & 1U)) >> 13
                       : std::bit_cast<std::uint32_t>(std::bit_cast<float>(mag) + 0.5F) - 0x3f000000U;
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | h);
  }
  TITHE_HD static float unpack(std::uint16_t h) {
    const std::uint32_t sign = std::uint32_t{h & 0x8000U} << 16;
    const std::uint32_t mag = h & 0x7fffU;
    std::uint32_t bits = 0;
    if (mag >= 0x7c00U)  // Inf and NaN: encode writes neither, but decode must accept any bits
      bits = 0x7f800000U | mag << 13;
    else if (mag >= 0x400U)
      bits = (mag << 13) + kRebias;
    else
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(mag) * 0x1p-24F);
    return std::bit_cast<float>(sign | bits);
  }
};

}  // namespace tithe::fp16
