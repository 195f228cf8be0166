// SPDX-License-Identifier: Apache-2.0
#include "codec/tbq/tbq.h"

#include "support/codec_run.h"

namespace tithe::tbq {
namespace {

using harness::EncodeOutput;
using harness::send;

TEST(Tbq, WhatReachesTheThresholdIsSentAsTheThreshold) {
  const EncodeOutput sent = send("tbq:tau=0.5", {0.75F, -1.0F, 0.25F, -0.5F, 0.375F});
  EXPECT_EQ(sent.values, (std::vector<float>{0.5F, -0.5F, 0, -0.5F, 0}));
  EXPECT_EQ(sent.residual_out, (std::vector<float>{0.25F, -0.5F, 0.25F, 0, 0.375F}));
  ASSERT_EQ(sent.payload.size(), 6U);
  EXPECT_EQ(wire::get<float>(sent.payload.data()), 0.5F);
  EXPECT_EQ(sent.payload[4], 0b01011);
  EXPECT_EQ(sent.payload[5], 0b01010);
}

// HiPress: r >= tau sends +tau (2), r <= -tau sends -tau (0), else nothing (1); four codes to a byte, LSB first.
TEST(Tbq, LiteralIsTheBytesOfHiPress) {
  const EncodeOutput sent = send("tbq:mode=literal,tau=0.5", {0.75F, -1.0F, 0.25F, -0.5F, 0.375F});
  EXPECT_EQ(sent.payload, (std::vector<std::uint8_t>{0b00'01'00'10, 0b01}));
  EXPECT_EQ(sent.values, (std::vector<float>{0.5F, -0.5F, 0, -0.5F, 0}));
  EXPECT_EQ(sent.residual_out, (std::vector<float>{0.25F, -0.5F, 0.25F, 0, 0.375F}));
  EXPECT_EQ(send("tbq:mode=literal", {2, -0.5F}).values, (std::vector<float>{1, 0}));
  EXPECT_FALSE(send("tbq:mode=literal", {2, std::nanf("")}).finite);

  const Spec spec = harness::spec_of("tbq:mode=literal");
  const auto check = [&](std::vector<std::uint8_t> p) {
    return spec.codec->reference().check({.settings = spec.settings}, 5, p).code();
  };
  EXPECT_EQ(check(sent.payload), Code::kOk);
  EXPECT_EQ(check({0b00'11'00'10, 0b01}), Code::kCorrupt);
  EXPECT_EQ(check({0b00'01'00'10, 0b0101}), Code::kCorrupt);
  EXPECT_EQ(check({0b00'01'00'10}), Code::kCorrupt);
}

TEST(Tbq, WhatIsTooSmallWaitsInTheResidual) {
  const std::vector<float> grad(3, 0.25F);
  EncodeOutput sent = send("tbq:tau=0.5", grad);
  EXPECT_EQ(sent.values, std::vector<float>(3, 0.0F));
  sent = send("tbq:tau=0.5", grad, 2, sent.residual_out);
  EXPECT_EQ(sent.values, std::vector<float>(3, 0.5F));
  EXPECT_EQ(sent.residual_out, std::vector<float>(3, 0.0F));
}

TEST(Tbq, EqualMagnitudesAreSentExactly) {
  std::vector<float> grad(3000);
  for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = i % 3 == 0 ? -0.3F : 0.3F;
  EXPECT_EQ(send("tbq", grad).values, grad);
}

TEST(Tbq, BlocksHaveTheirOwnThreshold) {
  std::vector<float> grad(2 * ternary::kBlock, 1.0F);
  std::fill(grad.begin() + ternary::kBlock, grad.end(), 1e-6F);
  EXPECT_EQ(send("tbq", grad).values, grad);
}

// The bound of tbq.h, and for normal values much better.
TEST(Tbq, Contracts) {
  constexpr std::size_t kValues = 16 * ternary::kBlock;
  std::vector<float> lone(kValues, 1e-6F), heavy = harness::bell(kValues, 1, 2);
  const std::vector<float> size = harness::bell(kValues, 3, 3);
  for (std::size_t i = 0; i < kValues; ++i) {
    heavy[i] *= std::exp(size[i]);
    if (i % 5000 == 0) lone[i] = -3;
  }
  const double bound = 1 - 1.0 / ternary::kBlock;
  for (const std::vector<float>& grad : {harness::bell(kValues), heavy, lone, harness::bell(kValues, 1e36F)})
    EXPECT_LE(harness::squares(send("tbq", grad).residual_out), bound * harness::squares(grad));
  const std::vector<float> normal = harness::bell(kValues);
  EXPECT_LT(harness::squares(send("tbq", normal).residual_out), 0.4 * harness::squares(normal));
}

TEST(Tbq, CheckRefusesWhatEncodeCannotWrite) {
  const Spec spec = harness::spec_of("tbq");
  const auto check = [&](const std::vector<std::uint8_t>& p) {
    return spec.codec->reference().check({.settings = spec.settings}, 5, p).code();
  };
  const std::vector<std::uint8_t> good = send("tbq:tau=0.5", {0.75F, -1.0F, 0.25F, -0.5F, 0.375F}).payload;
  EXPECT_EQ(check(good), Code::kOk);
  std::vector<std::uint8_t> p = good;
  p[5] |= 4;  // the sign of what is not sent
  EXPECT_EQ(check(p), Code::kCorrupt);
  p = good;
  p[4] |= 32;  // a sixth value
  EXPECT_EQ(check(p), Code::kCorrupt);
  for (const float scale : {-0.5F, -0.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    p = good;
    wire::put(p.data(), scale);
    EXPECT_EQ(check(p), Code::kCorrupt) << scale;
  }
}

}  // namespace
}  // namespace tithe::tbq
