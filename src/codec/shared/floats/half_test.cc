// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/floats/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "codec/bf16/bf16.h"
#include "codec/fp16/fp16.h"

namespace tithe::half {
namespace {

template <typename Format>
struct Facts;
template <>
struct Facts<bf16::Format> {
  static constexpr std::uint16_t kInf = 0x7f80, kOne = 0x3f80, kThird = 0x3eab;
  static constexpr float kSmallest = 0x1p-133F;
  static constexpr const Kernels& kSimd = bf16::kSimd;
};
template <>
struct Facts<fp16::Format> {
  static constexpr std::uint16_t kInf = 0x7c00, kOne = 0x3c00, kThird = 0x3555;
  static constexpr float kSmallest = 0x1p-24F;
  static constexpr const Kernels& kSimd = fp16::kSimd;
};

template <typename Format>
class HalfFormat : public testing::Test {
 protected:
  // The reference's answer, once the vectors gave the same one.
  static std::uint16_t pack(float v) {
    const std::vector<float> grad(16, v);
    std::vector<std::uint8_t> out(32);
    Facts<Format>::kSimd.encode({grad.data(), nullptr, nullptr, 16}, out.data());
    const std::uint16_t h = Format::pack(v);
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(wire::get<std::uint16_t>(&out[2 * i]), h) << v;
    return h;
  }
};
using Formats = testing::Types<bf16::Format, fp16::Format>;
TYPED_TEST_SUITE(HalfFormat, Formats);

TYPED_TEST(HalfFormat, KnownValues) {
  using F = Facts<TypeParam>;
  EXPECT_EQ(this->pack(1.0F), F::kOne);
  EXPECT_EQ(this->pack(-1.0F), F::kOne | 0x8000);
  EXPECT_EQ(this->pack(1.0F / 3.0F), F::kThird);
  EXPECT_EQ(this->pack(0.0F), 0);
  EXPECT_EQ(this->pack(-0.0F), 0x8000);
  EXPECT_EQ(TypeParam::unpack(1), F::kSmallest);
  EXPECT_EQ(TypeParam::unpack(F::kInf), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(TypeParam::unpack(F::kInf + 1)));
}

TYPED_TEST(HalfFormat, EveryValueRoundTrips) {
  for (std::uint32_t h = 0; h < Facts<TypeParam>::kInf; ++h) {
    ASSERT_EQ(this->pack(TypeParam::unpack(static_cast<std::uint16_t>(h))), h);
    ASSERT_EQ(this->pack(TypeParam::unpack(static_cast<std::uint16_t>(h | 0x8000))), h | 0x8000);
  }
}

// Between two adjacent values: the nearer one, and half-way the even one.
TYPED_TEST(HalfFormat, RoundsToNearestEven) {
  for (std::uint32_t h = 0; h + 1 < Facts<TypeParam>::kInf; ++h) {
    const float low = TypeParam::unpack(static_cast<std::uint16_t>(h));
    const float high = TypeParam::unpack(static_cast<std::uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(this->pack(middle), h + h % 2);
    ASSERT_EQ(this->pack(std::nextafter(middle, 0.0F)), h);
    ASSERT_EQ(this->pack(std::nextafter(middle, high)), h + 1);
    ASSERT_EQ(this->pack(-middle), (h + h % 2) | 0x8000);
  }
}

TYPED_TEST(HalfFormat, SaturatesAtTheLargestValue) {
  const std::uint16_t largest = Facts<TypeParam>::kInf - 1;
  const float top = TypeParam::unpack(largest);
  for (const float v : {top, std::nextafter(top, std::numeric_limits<float>::infinity()),
                        std::numeric_limits<float>::max()}) {
    EXPECT_EQ(this->pack(v), largest);
    EXPECT_EQ(this->pack(-v), largest | 0x8000);
  }
}

// The sum of two largest values overflows the format. If it is a finite float, the sum saturates and the rest goes to
// the residual; otherwise it is reported.
TYPED_TEST(HalfFormat, CombineSaturatesOrReportsOverflow) {
  const std::uint16_t largest = Facts<TypeParam>::kInf - 1;
  std::vector<std::uint8_t> acc(2), in(2);
  wire::put(acc.data(), largest);
  wire::put(in.data(), largest);
  float residual_out = 0;
  const bool is_float = std::isfinite(2 * TypeParam::unpack(largest));
  ASSERT_EQ(combine_from<TypeParam>(0, 1, acc.data(), in.data(), &residual_out), is_float);
  if (!is_float) return;
  EXPECT_EQ(wire::get<std::uint16_t>(acc.data()), largest);
  EXPECT_EQ(residual_out, TypeParam::unpack(largest));
}

}  // namespace
}  // namespace tithe::half
