// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/codec_run.h"

namespace tithe {
namespace {

using harness::EncodeOutput;
using harness::send;

TEST(Dct, AConstantIsOneCoefficientAndExact) {
  const EncodeOutput sent = send("dct:keep=1", std::vector<float>(128, -0.375F));
  EXPECT_EQ(sent.payload, (std::vector<std::uint8_t>{1, 0, 0x40, 0xc0, 0, 0x40, 0xc0}));  // 8 x -0.375 = -3
  EXPECT_EQ(sent.values, std::vector<float>(128, -0.375F));
  EXPECT_EQ(sent.residual_out, std::vector<float>(128, 0.0F));
}

TEST(Dct, ACosineOfItsOwnIsOneCoefficient) {
  std::vector<float> wave(64);
  for (std::size_t i = 0; i < wave.size(); ++i)
    wave[i] = static_cast<float>(std::cos(std::numbers::pi * (2.0 * static_cast<double>(i) + 1) * 5 / 128));
  const EncodeOutput sent = send("dct:keep=1", wave);
  EXPECT_EQ(sent.payload[1], 5);
  for (std::size_t i = 0; i < wave.size(); ++i) EXPECT_NEAR(sent.values[i], wave[i], 1.0 / 256);
}

TEST(Dct, AllCoefficientsGiveTheValuesBackToBf16) {
  std::vector<float> ramp(100);  // one chunk and a part of one
  for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i % 7) - 3.0F;
  const EncodeOutput sent = send("dct:keep=64", ramp);
  // bf16 rounds a coefficient by 2^-9 of it at most, and the transform keeps lengths: so does a chunk, as a whole.
  for (const auto& [first, end] : {std::pair<std::size_t, std::size_t>{0, 64}, {64, 100}}) {
    double error = 0, energy = 0;
    for (std::size_t i = first; i < end; ++i) {
      error += std::pow(double{sent.values[i]} - ramp[i], 2);
      energy += std::pow(double{ramp[i]}, 2);
      EXPECT_EQ(sent.values[i] + sent.residual_out[i], ramp[i]) << i;
    }
    EXPECT_LE(std::sqrt(error), 0x1.01p-9 * std::sqrt(energy)) << first;
    EXPECT_GT(error, 0) << "not rounded at all?";
  }
}

TEST(Dct, ValuesNearTheLargestFloatStayFiniteAndGetThroughInTime) {
  std::vector<float> value(64, 3e38F);
  for (int round = 0; round < 300; ++round) {
    const EncodeOutput sent = send("dct:keep=1", value);
    for (std::size_t i = 0; i < value.size(); ++i) ASSERT_TRUE(std::isfinite(sent.residual_out[i])) << round;
    value = sent.residual_out;
  }
  EXPECT_LT(value[0], 3e30F);
}

}  // namespace
}  // namespace tithe
