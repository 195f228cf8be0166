// SPDX-License-Identifier: Apache-2.0
#pragma once
// The 8-bit floats of fp8 and fp8_shared (codec/fp8/fp8.h has their meaning and layout).
#include <algorithm>
#include <bit>
#include <cstdint>

#include "tithe/seam/codec.h"
#include "tithe/seam/hd.h"

namespace tithe::fp8 {

inline constexpr std::string_view kFormats[] = {"e4m3", "e5m2"};
inline constexpr ParamSpec kParams[] = {
    {"format", 0, 0, 1, "e4m3: 3 fraction bits, 17 octaves per block; e5m2: 2 fraction bits, 31 octaves",
     kFormats}};

inline constexpr std::size_t kHead = 1;
inline constexpr std::size_t kBlock = 32;
inline constexpr std::uint32_t kMinScale = 17;  // 2^-110

template <int kMantissa, int kExponentBias, int kTopExponent, std::uint8_t kLargestCode>
struct Format {
  static constexpr std::uint8_t kNumber = kMantissa == 3 ? 0 : 1;  // in a payload
  static constexpr int kShift = 23 - kMantissa;
  static constexpr std::uint32_t kNormal = static_cast<std::uint32_t>(128 - kExponentBias) << 23;  // as fp32
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kExponentBias) << 23;
  // The float whose last bit is the smallest subnormal: adding it rounds.
  static constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(128 - kExponentBias + kShift) << 23;
  static constexpr std::uint32_t kLargest = kLargestCode;  // 1.75 * 2^kTop
  static constexpr std::uint32_t kTop = kTopExponent;
  static constexpr std::uint32_t kMaxScale = 254 - kTop;  // with it the largest code is 1.75 * 2^127

  // The scale for a block whose largest magnitude has these bits.
  TITHE_HD static std::uint32_t scale_of(std::uint32_t largest) {
    const std::uint32_t exponent = (largest + 0x1fffffU) >> 23;
    return std::clamp(exponent, kMinScale + kTop, kMaxScale + kTop) - kTop;
  }
  // Magnitudes beyond the largest code become the largest code.
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
    if (mag > kLargest)  // Inf and NaN: encode writes neither, but decode must accept any bits
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
inline std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }

inline std::uint32_t max_scale(std::uint8_t format) {
  return format == E4M3::kNumber ? E4M3::kMaxScale : E5M2::kMaxScale;
}
// Calls use(E4M3()) or use(E5M2()).
template <typename Use>
auto in_format(std::uint8_t format, const Use& use) {
  return format == E4M3::kNumber ? use(E4M3()) : use(E5M2());
}
inline std::uint8_t format_of(const Settings& s) { return s[0] == 0 ? E4M3::kNumber : E5M2::kNumber; }
inline std::size_t blocks(std::size_t n) { return (n + kBlock - 1) / kBlock; }
inline std::size_t bytes(std::size_t n) { return kHead + blocks(n) + n; }
Status check_scales(std::string_view codec, std::uint8_t format, ByteView scales);
Status check(std::string_view codec, std::size_t n, ByteView payload);
float value_at(ByteView payload, std::size_t i, std::size_t n);  // value i of n
double contraction(const Settings&, std::size_t n);

}  // namespace tithe::fp8
