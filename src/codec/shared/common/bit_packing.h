// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bit packing: codes of 1 to 16 bits each, without gaps, lowest bit first. Eight at a time: codes of 1 to 8 bits.
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace tithe::bit_packing {

inline std::size_t bytes_for(std::size_t count, unsigned bits) { return (count * bits + 7) / 8; }

// Writes code i. All bits from code i on must be 0 before.
inline void put(std::uint8_t* p, std::size_t i, unsigned bits, unsigned code) {
  const std::size_t at = i * bits;
  unsigned shifted = code << (at % 8);
  p[at / 8] = static_cast<std::uint8_t>(p[at / 8] | shifted);
  for (std::size_t k = at / 8 + 1; 8 * k < at + bits; ++k) p[k] = static_cast<std::uint8_t>(shifted >>= 8);
}

inline unsigned get(const std::uint8_t* p, std::size_t i, unsigned bits) {
  const std::size_t at = i * bits;
  unsigned word = p[at / 8];
  for (std::size_t k = 1; 8 * (at / 8 + k) < at + bits; ++k) word |= unsigned{p[at / 8 + k]} << (8 * k);
  return word >> (at % 8) & ((1U << bits) - 1);
}

// Packs eight codes, one per byte, into the low `bits` bytes: joins neighbours, then pairs, then fours.
inline std::uint64_t pack8(std::uint64_t octets, unsigned bits) {
  octets = (octets & 0x00ff00ff00ff00ffU) | (octets >> 8 & 0x00ff00ff00ff00ffU) << bits;
  octets = (octets & 0x0000ffff0000ffffU) | (octets >> 16 & 0x0000ffff0000ffffU) << (2 * bits);
  return (octets & 0xffffffffU) | octets >> 32 << (4 * bits);
}

// The inverse of pack8; ignores the bytes above the low `bits`.
inline std::uint64_t unpack8(std::uint64_t packed, unsigned bits) {
  const std::uint64_t one = (1U << bits) - 1;
  const std::uint64_t two = (1U << 2 * bits) - 1, four = (std::uint64_t{1} << 4 * bits) - 1;
  packed = (packed & four) | (packed >> (4 * bits) & four) << 32;
  packed = (packed & two * 0x100000001U) | (packed >> (2 * bits) & two * 0x100000001U) << 16;
  return (packed & one * 0x0001000100010001U) | (packed >> bits & one * 0x0001000100010001U) << 8;
}

// Codes i .. i + 7, one per byte. i is a multiple of 8; p holds `size` bytes, and all eight codes lie within them.
inline std::uint64_t get8(const std::uint8_t* p, std::size_t size, std::size_t i, unsigned bits) {
  const std::size_t at = i / 8 * bits;
  if (at + 8 <= size) return unpack8(wire::get<std::uint64_t>(p + at), bits);
  std::uint64_t octets = 0;
  for (unsigned k = 0; k < 8; ++k) octets |= std::uint64_t{get(p, i + k, bits)} << (8 * k);
  return octets;
}

// True if the padding bits after `count` codes are 0.
inline bool ends_clean(const std::uint8_t* p, std::size_t count, unsigned bits) {
  const std::size_t at = count * bits;
  return at % 8 == 0 || p[at / 8] >> (at % 8) == 0;
}

}  // namespace tithe::bit_packing
