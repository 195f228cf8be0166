// SPDX-License-Identifier: Apache-2.0
#include "codec/onebit/onebit.h"

#include <gtest/gtest.h>

#include <vector>

namespace tithe::onebit {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes encode(const std::vector<float>& grad, std::vector<float>& residual_out) {
  Bytes out(bound({}, grad.size()));
  EXPECT_TRUE(kSimd.encode({}, {grad.data(), nullptr, residual_out.data(), grad.size()}, out.data()));
  return out;
}

TEST(Onebit, TwoMeansAndASignEach) {
  std::vector<float> residual_out(5);
  const Bytes got = encode({1.0F, -3.0F, -0.0F, 2.0F, -1.0F}, residual_out);
  ASSERT_EQ(got.size(), 9U);
  EXPECT_EQ(wire::get<float>(&got[0]), -2.0F);  // of -3 and -1
  EXPECT_EQ(wire::get<float>(&got[4]), 1.0F);   // of 1, -0 and 2
  EXPECT_EQ(got[8], 0b01101);
  EXPECT_EQ(residual_out, (std::vector<float>{0.0F, -1.0F, -1.0F, 1.0F, 1.0F}));
}

TEST(Onebit, EachBlockHasItsOwnMeans) {
  std::vector<float> grad(kBlock + 1, 4.0F), residual_out(kBlock + 1);
  grad[kBlock] = -7.0F;
  const Bytes got = encode(grad, residual_out);
  ASSERT_EQ(got.size(), kBlockBytes + 9);
  EXPECT_EQ(wire::get<float>(&got[0]), 0.0F);
  EXPECT_EQ(wire::get<float>(&got[4]), 4.0F);
  EXPECT_EQ(wire::get<float>(&got[kBlockBytes]), -7.0F);
  EXPECT_EQ(wire::get<float>(&got[kBlockBytes + 4]), 0.0F);
  EXPECT_EQ(got[kBlockBytes + 8], 0);
  EXPECT_EQ(residual_out, std::vector<float>(kBlock + 1, 0.0F));
}

// A sum past the largest float is held there: the mean is finite, and so is what is left.
TEST(Onebit, HugeValuesKeepFiniteMeans) {
  std::vector<float> residual_out(64);
  const Bytes got = encode(std::vector<float>(64, 3e38F), residual_out);
  EXPECT_EQ(wire::get<float>(&got[4]), std::numeric_limits<float>::max() / 64);
  for (const float v : residual_out) EXPECT_TRUE(is_finite(v));
}

TEST(Onebit, CheckRefusesWhatEncodeCannotWrite) {
  std::vector<float> residual_out(5);
  const Bytes good = encode({1.0F, -3.0F, -0.0F, 2.0F, -1.0F}, residual_out);
  EXPECT_TRUE(check({}, 5, good).ok());
  const auto with = [&](std::size_t at, float v) {
    Bytes p = good;
    wire::put(&p[at], v);
    return check({}, 5, p).code();
  };
  EXPECT_EQ(with(0, 0.5F), Code::kCorrupt);   // negatives with a positive mean
  EXPECT_EQ(with(4, -0.5F), Code::kCorrupt);  // and the other way round
  EXPECT_EQ(with(4, std::numeric_limits<float>::quiet_NaN()), Code::kCorrupt);
  EXPECT_EQ(with(0, -std::numeric_limits<float>::infinity()), Code::kCorrupt);
  Bytes p = good;
  p[8] |= 1U << 5;  // a sixth sign
  EXPECT_EQ(check({}, 5, p).code(), Code::kCorrupt);
  EXPECT_EQ(check({}, 6, good).code(), Code::kOk);  // the same number of bytes: who asks must know n
}

}  // namespace
}  // namespace tithe::onebit
