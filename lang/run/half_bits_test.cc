// SPDX-License-Identifier: Apache-2.0
#include "lang/run/half_bits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tithe::lang {
namespace {

float value(std::uint32_t h) { return std::bit_cast<float>(from_half_bits(h)); }

TEST(HalfBits, EveryBinary16IsItsOwnNearest) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const bool nan = (h & 0x7fffU) > 0x7c00U;
    EXPECT_EQ(half_bits(from_half_bits(h)), nan ? h | 0x200U : h) << h;
    EXPECT_EQ(std::isnan(value(h)), nan) << h;
    if (nan || (h & 0x7fffU) == 0x7c00U) continue;
    // 10 bits of fraction; the exponent's bias is 15, and subnormals have the exponent of the binade above.
    const std::uint32_t octave = h >> 10 & 31U, fraction = h & 0x3ffU;
    const float size = std::ldexp(static_cast<float>(octave == 0 ? fraction : fraction + 1024),
                                  std::max(1, static_cast<int>(octave)) - 25);
    EXPECT_EQ(value(h), h < 0x8000U ? size : -size) << h;
  }
}

// Between two adjacent values: the midpoint goes to the even one, the floats next to it to the nearer one. The last
// midpoint is that of 65504 and 65536, which becomes infinity.
TEST(HalfBits, TiesToEven) {
  for (std::uint32_t h = 0; h < 0x7c00U; ++h) {
    const double next = h + 1 == 0x7c00U ? 65536.0 : static_cast<double>(value(h + 1));
    const auto middle = static_cast<float>((static_cast<double>(value(h)) + next) / 2);
    for (const std::uint32_t sign : {0U, 1U}) {
      const auto half_of = [&](float v) {
        return half_bits(std::bit_cast<std::uint32_t>(v) | sign << 31) - (sign << 15);
      };
      EXPECT_EQ(half_of(middle), h + h % 2) << h;
      EXPECT_EQ(half_of(std::nextafter(middle, 0.0F)), h) << h;
      EXPECT_EQ(half_of(std::nextafter(middle, 1e9F)), h + 1) << h;
    }
  }
  EXPECT_EQ(half_bits(0x7f7fffffU), 0x7c00U);
  EXPECT_EQ(half_bits(0xff800000U), 0xfc00U);
  EXPECT_EQ(half_bits(0xffc02000U), 0xfe01U);
}

}  // namespace
}  // namespace tithe::lang
