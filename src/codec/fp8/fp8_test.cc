// SPDX-License-Identifier: Apache-2.0
#include "codec/fp8/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codec/shared/floats/fp8_format.h"
#include "support/codec_run.h"
#include "support/draws.h"
#include "support/implementations_agree.h"
#include "tithe/seam/spec.h"

namespace tithe::fp8 {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;
using draws::Shape;
using harness::EncodeOutput;
using harness::send;

template <typename Float>
class Fp8Format : public testing::Test {};
using Formats = testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Fp8Format, Formats);

TYPED_TEST(Fp8Format, EveryValueRoundTrips) {
  for (std::uint32_t code = 0; code <= TypeParam::kLargest; ++code) {
    const auto plus = static_cast<std::uint8_t>(code);
    const auto minus = static_cast<std::uint8_t>(code | 0x80);
    ASSERT_EQ(TypeParam::pack(TypeParam::unpack(plus)), plus);
    ASSERT_EQ(TypeParam::pack(TypeParam::unpack(minus)), minus);
  }
}

// Between two adjacent codes: the nearer one, and half-way the even one.
TYPED_TEST(Fp8Format, RoundsToNearestEven) {
  for (std::uint32_t code = 0; code < TypeParam::kLargest; ++code) {
    const float low = TypeParam::unpack(static_cast<std::uint8_t>(code));
    const float high = TypeParam::unpack(static_cast<std::uint8_t>(code + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(TypeParam::pack(middle), code + code % 2);
    ASSERT_EQ(TypeParam::pack(std::nextafter(middle, 0.0F)), code);
    ASSERT_EQ(TypeParam::pack(std::nextafter(middle, high)), code + 1);
    ASSERT_EQ(TypeParam::pack(-middle), (code + code % 2) | 0x80);
  }
}

TEST(Fp8, KnownCodes) {
  EXPECT_EQ(E4M3::unpack(0x7e), 448.0F);
  EXPECT_EQ(E4M3::unpack(0x38), 1.0F);
  EXPECT_EQ(E4M3::unpack(0x01), 0x1p-9F);
  EXPECT_EQ(E4M3::unpack(0x08), 0x1p-6F);
  EXPECT_TRUE(std::isnan(E4M3::unpack(0x7f)));
  EXPECT_EQ(E5M2::unpack(0x7b), 57344.0F);
  EXPECT_EQ(E5M2::unpack(0x3c), 1.0F);
  EXPECT_EQ(E5M2::unpack(0x01), 0x1p-16F);
  EXPECT_EQ(E5M2::unpack(0x7c), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(E5M2::unpack(0x7d)));
}

TYPED_TEST(Fp8Format, TheScaleIsTheSmallestThatFits) {
  const float largest = TypeParam::unpack(static_cast<std::uint8_t>(TypeParam::kLargest));
  const auto scale = [](float v) {
    return scale_value(TypeParam::scale_of(std::bit_cast<std::uint32_t>(v)));
  };
  EXPECT_EQ(scale(largest), 1.0F);
  EXPECT_EQ(scale(std::nextafter(largest, 1e9F)), 2.0F);
  EXPECT_EQ(scale(largest / 2), 0.5F);
  EXPECT_EQ(scale(0.0F), 0x1p-110F);
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(scale(most) * largest, 1.75F * 0x1p127F);
}

// |v - sent| <= max(2^-(m + 1) |v|, half the block's smallest subnormal), and the residual is exact.
TEST(Fp8, ErrorsStayWithinTheirBound) {
  for (const Shape kind : draws::kShapes)
    for (const bool e4m3 : {true, false}) {
      const Floats v = draws::of(kind, 3001);
      const EncodeOutput t = send(e4m3 ? "fp8" : "fp8:format=e5m2", v);
      for (std::size_t i = 0; i < v.size(); ++i) {
        const double scale = scale_value(t.payload[kHead + i / kBlock]);
        const double low = scale * (e4m3 ? 0x1p-10 : 0x1p-17);
        const double allowed = std::max(low, std::abs(double{v[i]}) * (e4m3 ? 0x1p-4 : 0x1p-3));
        ASSERT_LE(std::abs(double{v[i]} - double{t.values[i]}), allowed) << name(kind) << " " << i;
        ASSERT_EQ(t.values[i] + t.residual_out[i], v[i]) << name(kind) << " " << i;
      }
    }
}

TEST(Fp8, LargestFloatsSaturateAndLeaveAResidual) {
  const float most = std::numeric_limits<float>::max();
  for (const char* spec : {"fp8", "fp8:format=e5m2"}) {
    const EncodeOutput t = send(spec, {most, -most, 1.0F});
    EXPECT_EQ(t.values, (Floats{1.75F * 0x1p127F, -1.75F * 0x1p127F, 0.0F})) << spec;
    EXPECT_EQ(t.values[0] + t.residual_out[0], most);
    EXPECT_EQ(t.residual_out[2], 1.0F);
  }
}

TEST(Fp8, EachBlockHasItsOwnScale) {
  Floats v(kBlock + 1, 448.0F);
  v[kBlock] = 0x1p-20F;
  const EncodeOutput t = send("fp8", v);
  EXPECT_EQ(t.payload.size(), 1 + 2 + v.size());
  EXPECT_EQ(t.payload[1], 127);
  EXPECT_EQ(t.payload[2], 127 - 28);
  EXPECT_EQ(t.values, v);
}

TEST(Fp8, CheckRefusesInvalidPayloads) {
  const auto check = fp8_codec.reference().check;
  Bytes p = send("fp8", {1.0F, 2.0F}).payload;
  EXPECT_TRUE(check({}, 2, p).ok());
  p[0] = 2;
  EXPECT_EQ(check({}, 2, p).code(), Code::kCorrupt);
  p[0] = 0;
  for (const int scale : {0, 16, 247, 255}) {
    p[1] = static_cast<std::uint8_t>(scale);
    EXPECT_EQ(check({}, 2, p).code(), Code::kCorrupt) << scale;
  }
  p[0] = 1;
  p[1] = 246;  // for e5m2 its largest code would be infinite
  EXPECT_EQ(check({}, 2, p).code(), Code::kCorrupt);
}

TEST(Fp8, FastEqualsReferenceOnAnyFloats) {
  for (const char* spec : {"fp8", "fp8:format=e5m2"}) harness::expect_impls_agree(spec);
}

}  // namespace
}  // namespace tithe::fp8
