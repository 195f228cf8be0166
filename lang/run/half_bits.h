// SPDX-License-Identifier: Apache-2.0
#pragma once
// Conversion between binary16 (IEEE 754) and binary32 bits: rounds to nearest, ties to even; infinity from 65520 on;
// subnormals are kept. A NaN keeps its sign and leading bits and becomes quiet, like the processors' conversion
// instructions. The codec fp16 has no such rule, since it sends only finite values.
#include <bit>
#include <cstdint>

#include "codec/shared/floats/fp16_format.h"

namespace tithe::lang {

inline std::uint32_t half_bits(std::uint32_t v) {
  const std::uint32_t size = v & 0x7fffffffU, sign = v >> 16 & 0x8000U;
  if (size > 0x7f800000U) return sign | 0x7e00U | (size >> 13 & 0x3ffU);
  if (size >= 0x477ff000U) return sign | 0x7c00U;
  return fp16::Format::pack(std::bit_cast<float>(v));
}

// `h` has 16 bits.
inline std::uint32_t from_half_bits(std::uint32_t h) {
  const std::uint32_t quiet = (h & 0x7fffU) > 0x7c00U ? 0x400000U : 0U;
  return std::bit_cast<std::uint32_t>(fp16::Format::unpack(static_cast<std::uint16_t>(h))) | quiet;
}

}  // namespace tithe::lang
