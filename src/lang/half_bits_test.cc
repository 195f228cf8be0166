// SPDX-License-Identifier: Apache-2.0
#include "lang/half_bits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "codec/floats/fp16_format.h"

namespace tithe::lang {
namespace {

float value(std::uint32_t h) { return std::bit_cast<float>(from_half_bits(h)); }

TEST(HalfBits, EveryBinary16IsItsOwnNearest) {
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const bool nan = (h & 0x7fffU) > 0x7c00U;
    EXPECT_EQ(half_bits(from_half_bits(h)), nan ? h | 0x200U : h) << h;
    EXPECT_EQ(std::isnan(value(h)), nan) << h;
    if (nan || (h & 0x7fffU) == 0x7c00U) continue;
    EXPECT_EQ(value(h), fp16::Format::unpack(static_cast<std::uint16_t>(h))) << h;
  }
}

// Between two neighbours: the middle goes to the even one, the floats beside it to theirs. The last middle is that of
// 65504 and 65536, which is infinity.
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
