// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codes of 1 to 8 bits each, packed without gaps, the lowest bit first.
#include <cstddef>
#include <cstdint>

namespace tithe::codes {

inline std::size_t bytes_for(std::size_t count, unsigned bits) { return (count * bits + 7) / 8; }

// Code i; the bytes are 0 where no code has been put.
inline void put(std::uint8_t* p, std::size_t i, unsigned bits, unsigned code) {
  const std::size_t at = i * bits;
  const unsigned shifted = code << (at % 8);
  p[at / 8] = static_cast<std::uint8_t>(p[at / 8] | shifted);
  if (at % 8 + bits > 8) p[at / 8 + 1] = static_cast<std::uint8_t>(shifted >> 8);
}

inline unsigned get(const std::uint8_t* p, std::size_t i, unsigned bits) {
  const std::size_t at = i * bits;
  unsigned word = p[at / 8];
  if (at % 8 + bits > 8) word |= unsigned{p[at / 8 + 1]} << 8;
  return word >> (at % 8) & ((1U << bits) - 1);
}

// The bits behind the last of `count` codes are 0.
inline bool ends_clean(const std::uint8_t* p, std::size_t count, unsigned bits) {
  const std::size_t at = count * bits;
  return at % 8 == 0 || p[at / 8] >> (at % 8) == 0;
}

}  // namespace tithe::codes
