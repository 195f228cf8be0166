// SPDX-License-Identifier: Apache-2.0
#pragma once
// The size classes of codec/inceptionn/inceptionn.h (meaning and source there): 0, 8, 16 or 32 bits for a value,
// truncated toward zero. Sparsifiers use them for sent values too (values=inceptionn).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace tithe::inceptionn {

enum Mode : std::uint8_t { kStrict, kLiteral };

inline constexpr std::size_t kTagBytes[] = {0, 1, 2, 4};  // bytes of a value, by tag

// low, middle, top: the lower edges of tags 1, 2, 3, as bits of magnitudes. unit, per_unit: the units and their
// inverses of tag 1 [0], 7 bits, and tag 2 [1], 15 bits.
struct Classes {
  std::uint32_t low, middle, top;
  float unit[2];
  float per_unit[2];
};

inline Classes classes(Mode mode, int b) {
  const bool strict = mode == kStrict;
  const int middle = strict ? std::min(-(b / 2), 7 - b) : -(b / 2);
  const int top = strict ? std::min(0, 15 - b) : 0;
  const int unit[2] = {strict ? middle - 7 : -7, top - 15};
  const auto edge = [](int exponent) { return static_cast<std::uint32_t>(127 + exponent) << 23; };
  return {.low = edge(-b),
          .middle = edge(middle),
          .top = edge(top),
          .unit = {std::ldexp(1.0F, unit[0]), std::ldexp(1.0F, unit[1])},
          .per_unit = {std::ldexp(1.0F, -unit[0]), std::ldexp(1.0F, -unit[1])}};
}

struct CodedValue {
  unsigned tag;
  std::uint32_t word;  // its low kTagBytes[tag] bytes are sent
  float value;         // the decoded value
};

inline CodedValue send(const Classes& c, float v) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude < c.low) return {0, 0, 0.0F};
  if (magnitude >= c.top) return {3, bits, v};
  const unsigned wide = magnitude >= c.middle;
  const auto q = static_cast<std::uint32_t>(std::fabs(v) * c.per_unit[wide]);
  const std::uint32_t sign = bits >> 31;
  return {1 + wide, sign << (wide ? 15 : 7) | q, std::copysign(static_cast<float>(q) * c.unit[wide], v)};
}

// Decodes the value whose bytes start at p.
inline float receive(const Classes& c, unsigned tag, const std::uint8_t* p) {
  if (tag == 0) return 0.0F;
  if (tag == 3) return wire::get<float>(p);
  const unsigned wide = tag - 1;
  const unsigned word = wide ? wire::get<std::uint16_t>(p) : *p;
  const unsigned sign = word >> (wide ? 15 : 7);
  const float magnitude = static_cast<float>(word & (wide ? 0x7fffU : 0x7fU)) * c.unit[wide];
  return sign ? -magnitude : magnitude;
}

inline void put_bytes(std::uint8_t* p, unsigned tag, std::uint32_t word) {
  for (std::size_t k = 0; k < kTagBytes[tag]; ++k) p[k] = static_cast<std::uint8_t>(word >> (8 * k));
}

}  // namespace tithe::inceptionn
