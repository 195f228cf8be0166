// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bytes of a payload's items: numbers in whole bytes, little-endian; arrays of 1 to 32 bits per code without
// gaps, the lowest bit first, padded with 0.
#include "base/bytes.h"
#include "lang/front/passes.h"

namespace tithe::lang {

inline std::uint8_t* put_number(const Item& item, std::uint32_t v, std::uint8_t* to) {
  for (std::size_t k = 0; k < item_bytes(item, 1); ++k) *to++ = static_cast<std::uint8_t>(v >> (8 * k));
  return to;
}
inline std::uint32_t get_number(const Item& item, const std::uint8_t* from) {
  std::uint32_t v = 0;
  for (std::size_t k = 0; k < item_bytes(item, 1); ++k) v |= std::uint32_t{from[k]} << (8 * k);
  return v;
}

// Packs a run of codes; `count` * `bits` is a multiple of 8, or the run is the array's last.
inline void pack(const std::uint32_t* codes, std::size_t count, unsigned bits, std::uint8_t* to) {
  if (bits == 32) {
    for (std::size_t i = 0; i < count; ++i) wire::put(to + 4 * i, codes[i]);
    return;
  }
  if (bits == 8) {
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(codes[i]);
    return;
  }
  std::uint64_t word = 0;
  unsigned held = 0;
  for (std::size_t i = 0; i < count; ++i) {
    word |= std::uint64_t{codes[i]} << held;
    for (held += bits; held >= 8; held -= 8, word >>= 8) *to++ = static_cast<std::uint8_t>(word);
  }
  if (held > 0) *to = static_cast<std::uint8_t>(word);
}

inline void unpack(const std::uint8_t* from, std::size_t count, unsigned bits, std::uint32_t* codes) {
  if (bits == 32) {
    for (std::size_t i = 0; i < count; ++i) codes[i] = wire::get<std::uint32_t>(from + 4 * i);
    return;
  }
  std::uint64_t word = 0;
  unsigned held = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; held < bits; held += 8) word |= std::uint64_t{*from++} << held;
    codes[i] = static_cast<std::uint32_t>(word & ((std::uint64_t{1} << bits) - 1));
    word >>= bits;
    held -= bits;
  }
}

// True if all bits behind `count` codes are 0, up to `bytes`.
inline bool ends_clean(const std::uint8_t* from, std::size_t count, unsigned bits, std::size_t bytes) {
  const std::size_t at = count * bits;
  if (at % 8 != 0 && from[at / 8] >> (at % 8) != 0) return false;
  for (std::size_t k = (at + 7) / 8; k < bytes; ++k)
    if (from[k] != 0) return false;
  return true;
}

}  // namespace tithe::lang
