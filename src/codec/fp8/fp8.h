// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp8: 8-bit floats with a scale per block of 32 values, a power of two (Rouhani et al., "Microscaling Data Formats for
// Deep Learning", 2023; OCP Microscaling Formats 1.0). 8.25 bits per value.
//
//   e4m3   sign, 4 exponent and 3 fraction bits; largest 448, no infinity, 0x7f and 0xff are NaN
//   e5m2   sign, 5 exponent and 2 fraction bits; largest 57344, infinity and NaN as in binary16
//   scale  2^(s - 127) with s the smallest that lets the block's largest magnitude fit; at least 2^-110, below which
//          a product could leave the normal floats. Nothing saturates (the standard's own rule lets the top eighth)
//          but what is beyond 1.75 * 2^127
//   code   value / scale, rounded to nearest even, subnormals kept
//
// What rounding takes is a float, so taken == sent + left holds bit for bit.
//
// The choice not taken: one scale for all ranks by a max phase, then codes that are added as they are (Peng et al.,
// "FP8-LM", 2023). There every hop rounds a sum of 8-bit floats to 8 bits again, and the scale has to leave room for
// the sum of all ranks: on W ranks log2(W) octaves more of the small values are lost. Here what a hop rounds off stays
// in its rank's residual, and a block follows its own layer.
//
// Layout   u8 format: 0 e4m3, 1 e5m2 | per block of 32 values: u8 s | n x u8 codes
#include <algorithm>
#include <bit>
#include <cstdint>

#include "tithe/hd.h"

namespace tithe::fp8 {

inline constexpr std::size_t kHead = 1;
inline constexpr std::size_t kBlock = 32;
inline constexpr std::uint32_t kLeastScale = 17;  // 2^-110

template <int kMantissa, int kExponentBias, int kTopExponent, std::uint8_t kLargestCode>
struct Format {
  static constexpr int kShift = 23 - kMantissa;
  static constexpr std::uint32_t kNormal = static_cast<std::uint32_t>(128 - kExponentBias) << 23;  // as fp32
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kExponentBias) << 23;
  // The float whose last bit is the smallest subnormal: adding it rounds for us.
  static constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(128 - kExponentBias + kShift) << 23;
  static constexpr std::uint32_t kLargest = kLargestCode;
  static constexpr std::uint32_t kMostScale =
      254 - kTopExponent;  // for which the largest code is 1.75 * 2^127

  // The scale for a block whose largest magnitude has these bits. The largest code is 1.75 * 2^kTopExponent.
  TITHE_HD static std::uint32_t scale_of(std::uint32_t largest) {
    const std::uint32_t exponent = (largest + 0x1fffffU) >> 23;
    return std::clamp(exponent, kLeastScale + kTopExponent, kMostScale + kTopExponent) - kTopExponent;
  }
  // What is beyond the largest code is the largest code.
  TITHE_HD static std::uint8_t pack(float v) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    const std::uint32_t mag = bits & 0x7fffffffU;
    const std::uint32_t code =
        mag >= kNormal
            ? (mag - kRebias + (1U << (kShift - 1)) - 1 + (mag >> kShift & 1U)) >> kShift
            : std::bit_cast<std::uint32_t>(std::bit_cast<float>(mag) + std::bit_cast<float>(kMagic)) - kMagic;
    return static_cast<std::uint8_t>((bits >> 24 & 0x80U) | std::min(code, kLargest));
  }
  TITHE_HD static float unpack(std::uint8_t code) {
    const std::uint32_t sign = std::uint32_t{code & 0x80U} << 24;
    const std::uint32_t mag = code & 0x7fU;
    std::uint32_t bits = 0;
    if (mag > kLargest)  // encode writes none, but any bits have an answer
      bits = kMantissa == 2 && mag == kLargest + 1 ? 0x7f800000U : 0x7fc00000U;
    else if (mag >> kMantissa != 0)
      bits = (mag << kShift) + kRebias;
    else
      bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(kMagic | mag) - std::bit_cast<float>(kMagic));
    return std::bit_cast<float>(sign | bits);
  }
};

using E4M3 = Format<3, 7, 8, 0x7e>;
using E5M2 = Format<2, 15, 15, 0x7b>;

inline float scale_value(std::uint32_t scale) { return std::bit_cast<float>(scale << 23); }

}  // namespace tithe::fp8
