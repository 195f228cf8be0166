// SPDX-License-Identifier: Apache-2.0
#pragma once
// bfloat16: the upper half of an fp32, rounded to nearest even. Used by the codec bf16 and by sparsifiers
// (values=bf16).
//
// The rounding error is a multiple of the value's last bit and fits in 24 bits, so taken == sent + residual_out holds
// bit for bit. The conversion uses integers only: the one of AVX512-BF16 flushes denormals, others do not.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

#include "tithe/seam/hd.h"

namespace tithe::bf16 {

inline constexpr std::uint32_t kLargest = 0x7f7f;

struct Format {
  static constexpr std::string_view kName = "bf16";
  TITHE_HD static std::uint16_t pack(float v) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
    const std::uint32_t mag = bits & 0x7fffffffU;
    const std::uint32_t rounded = (mag + 0x7fffU + (mag >> 16 & 1U)) >> 16;
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | std::min(rounded, kLargest));
  }
  TITHE_HD static float unpack(std::uint16_t h) { return std::bit_cast<float>(std::uint32_t{h} << 16); }
};

}  // namespace tithe::bf16
