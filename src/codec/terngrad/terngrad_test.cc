// SPDX-License-Identifier: Apache-2.0
#include "codec/terngrad/terngrad.h"

#include <set>

#include "support/codec_run.h"

namespace tithe::terngrad {
namespace {

using harness::EncodeOutput;
using harness::send;

TEST(Terngrad, MinusOneZeroOrOneTimesTheLargest) {
  const std::vector<float> grad = harness::bell(ternary::kBlock);
  float largest = 0;
  for (const float v : grad) largest = std::max(largest, std::fabs(v));
  const EncodeOutput sent = send("terngrad", grad);
  const std::set<float> seen(sent.values.begin(), sent.values.end());
  EXPECT_EQ(seen, (std::set<float>{-largest, 0, largest}));
  for (std::size_t i = 0; i < grad.size(); ++i) {
    EXPECT_GE(sent.values[i] * grad[i], 0) << i;
    if (std::fabs(grad[i]) == largest) {
      EXPECT_EQ(sent.values[i], grad[i]);
    }
  }
}

TEST(Terngrad, EqualMagnitudesAreSentExactlyWhateverTheDraws) {
  for (const float size : {0.3F, 1.0F, 0.1F, 3e38F, 1e-39F, 7.0F / 3}) {
    std::vector<float> grad(ternary::kBlock);
    for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = i % 3 == 0 ? -size : size;
    for (std::uint32_t round = 0; round < 32; ++round)
      ASSERT_EQ(send("terngrad", grad, round).values, grad) << size << ", round " << round;
  }
}

TEST(Terngrad, AQuarterOfTheScaleGoesAQuarterOfTheTime) {
  constexpr std::size_t kBlocks = 64;
  std::vector<float> grad(kBlocks * ternary::kBlock, 0.25F);
  for (std::size_t k = 0; k < kBlocks; ++k) grad[k * ternary::kBlock] = 1;
  const EncodeOutput sent = send("terngrad", grad);
  double gone = 0;
  for (const float v : sent.values) gone += v != 0.0F;
  const double tries = kBlocks * (ternary::kBlock - 1);
  EXPECT_NEAR(gone - kBlocks, tries / 4, 6 * std::sqrt(tries * 3 / 16));
}

TEST(Terngrad, CutHoldsTheScale) {
  const std::vector<float> grad = harness::bell(ternary::kBlock);
  const EncodeOutput sent = send("terngrad:cut=2.5", grad);
  const float scale = wire::get<float>(sent.payload.data());
  EXPECT_NEAR(scale, 2.5F, 0.2F);
  for (std::size_t i = 0; i < grad.size(); ++i)
    if (std::fabs(grad[i]) >= scale) {
      EXPECT_EQ(sent.values[i], std::copysign(scale, grad[i]));
    }
}

TEST(Terngrad, OtherRoundsDrawOtherNumbers) {
  const std::vector<float> grad = harness::bell(ternary::kBlock);
  EXPECT_EQ(send("terngrad", grad, 3).payload, send("terngrad", grad, 3).payload);
  EXPECT_NE(send("terngrad", grad, 3).payload, send("terngrad", grad, 4).payload);
}

}  // namespace
}  // namespace tithe::terngrad
