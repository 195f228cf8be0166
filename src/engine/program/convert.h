// SPDX-License-Identifier: Apache-2.0
#pragma once
// Converts between the caller's types and fp32. Rounds to nearest even; overflow gives Inf; NaN stays NaN. There is a
// reference for one value, and SIMD versions with the same bits.
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tithe::engine {

inline float from_bf16(std::uint16_t h) { return std::bit_cast<float>(std::uint32_t{h} << 16); }

inline std::uint16_t to_bf16(float v) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// The exponent biases differ by 112. One multiplication adjusts the exponent and normalises subnormals.
inline float from_fp16(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t{h & 0x8000U} << 16;
  const std::uint32_t rest = std::uint32_t{h & 0x7fffU} << 13;
  if (rest >= 0x0f800000U) return std::bit_cast<float>(sign | rest | 0x7f800000U);  // Inf, NaN
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) * 0x1p112F));
}

inline std::uint16_t to_fp16(float v) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const std::uint32_t mag = bits & 0x7fffffffU;
  if (mag > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (mag >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds past 65504
  if (mag < 0x38800000U)  // subnormal: adding 0.5 leaves the rounded value in the low bits
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(mag) + 0.5F) - 0x3f000000U));
  return static_cast<std::uint16_t>(sign | ((mag - 0x38000000U + 0xfffU + (mag >> 13 & 1U)) >> 13));
}

// n values each; in and out do not overlap.
struct Conversions {
  void (*bf16_to_floats)(const std::uint16_t* in, std::size_t n, float* out);
  void (*fp16_to_floats)(const std::uint16_t* in, std::size_t n, float* out);
  void (*floats_to_bf16)(const float* in, std::size_t n, std::uint16_t* out);
  void (*floats_to_fp16)(const float* in, std::size_t n, std::uint16_t* out);
};
extern const Conversions kReferenceConversions, kSimdConversions;

}  // namespace tithe::engine
