// SPDX-License-Identifier: Apache-2.0
// The codecs of levels and powers that are programs of codecs/: their bytes and their arithmetic, against the papers.
#include <algorithm>
#include <set>

#include "base/rng.h"
#include "support/codec_run.h"
#include "support/implementations_agree.h"

namespace tithe {
namespace {

using harness::EncodeOutput;
using harness::send;
using Payload = std::vector<std::uint8_t>;

constexpr std::size_t kBlock = 1024;  // values that share a scale of terngrad

TEST(Natural, PowersOfTwoAreSentExactly) {
  const std::vector<float> grad = {0.5F, -0.25F, 0, 0x1p-125F};
  const EncodeOutput sent = send("natural", grad);
  EXPECT_EQ(sent.payload, (Payload{1, 125, 128 + 124, 0, 1}));
  EXPECT_EQ(sent.values, grad);
}

TEST(Natural, TheWindowFollowsLargeValues) {
  const std::vector<float> grad = {1, -0.5F, 0, 4};
  const EncodeOutput sent = send("natural", grad);
  EXPECT_EQ(sent.payload, (Payload{3, 124, 128 + 123, 0, 126}));
  EXPECT_EQ(sent.values, grad);
}

TEST(Natural, RoundsUpInProportionToTheFraction) {
  constexpr std::size_t kValues = 65'536;
  const EncodeOutput sent = send("natural", std::vector<float>(kValues, 1.25F));
  double ups = 0;
  for (const float v : sent.values) {
    EXPECT_TRUE(v == 1 || v == 2) << v;
    ups += v == 2;
  }
  EXPECT_NEAR(ups, kValues / 4.0, 6 * std::sqrt(kValues * 3 / 16.0));
}

TEST(Natural, ValuesBeyondTheLargestPowerAreClamped) {
  const EncodeOutput sent = send("natural", {3e38F, -3e38F});
  EXPECT_EQ(sent.values, (std::vector<float>{0x1p127F, -0x1p127F}));
  EXPECT_EQ(sent.residual_out, (std::vector<float>{3e38F - 0x1p127F, 0x1p127F - 3e38F}));
}

TEST(Natural, LedgerIsExact) {
  for (const float scale : {1.0F, 1e-3F, 1e-39F, 1e36F}) {
    const std::vector<float> grad = harness::bell(5000, scale);
    const EncodeOutput sent = send("natural", grad);
    for (std::size_t i = 0; i < grad.size(); ++i)
      ASSERT_EQ(double{sent.values[i]} + double{sent.residual_out[i]}, double{grad[i]}) << i;
  }
}

// The variance of the paper: at most an eighth of the value's square, in the mean.
TEST(Natural, ErrorIsAtMostAnEighth) {
  const std::vector<float> grad = harness::bell(65'536);
  EXPECT_LT(harness::squares(send("natural", grad).residual_out), harness::squares(grad) / 8);
}

TEST(Natural, CheckRefusesInvalidBases) {
  const Spec spec = harness::spec_of("natural");
  EXPECT_TRUE(spec.codec->reference().check({.settings = spec.settings}, 1, Payload{127, 255}).ok());
  EXPECT_EQ(spec.codec->reference().check({.settings = spec.settings}, 1, Payload{128, 1}).code(),
            Code::kCorrupt);
  EXPECT_EQ(spec.codec->reference().check({.settings = spec.settings}, 1, Payload{0, 1}).code(),
            Code::kCorrupt);
}

TEST(Terngrad, ValuesAreTernaryMultiplesOfTheLargest) {
  const std::vector<float> grad = harness::bell(kBlock);
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

TEST(Terngrad, EqualMagnitudesAreExactForAnyDraws) {
  for (const float size : {0.3F, 1.0F, 0.1F, 3e38F, 1e-39F, 7.0F / 3}) {
    std::vector<float> grad(kBlock);
    for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = i % 3 == 0 ? -size : size;
    for (std::uint32_t round = 0; round < 32; ++round)
      ASSERT_EQ(send("terngrad", grad, round).values, grad) << size << ", round " << round;
  }
}

TEST(Terngrad, RoundsUpInProportionToTheScale) {
  constexpr std::size_t kBlocks = 64;
  std::vector<float> grad(kBlocks * kBlock, 0.25F);
  for (std::size_t k = 0; k < kBlocks; ++k) grad[k * kBlock] = 1;
  const EncodeOutput sent = send("terngrad", grad);
  double gone = 0;
  for (const float v : sent.values) gone += v != 0.0F;
  const double tries = kBlocks * (kBlock - 1);
  EXPECT_NEAR(gone - kBlocks, tries / 4, 6 * std::sqrt(tries * 3 / 16));
}

TEST(Terngrad, ClippingLimitsTheScale) {
  const std::vector<float> grad = harness::bell(kBlock);
  const EncodeOutput sent = send("terngrad:cut=2.5", grad);
  const float scale = wire::get<float>(sent.payload.data());
  EXPECT_NEAR(scale, 2.5F, 0.2F);
  for (std::size_t i = 0; i < grad.size(); ++i)
    if (std::fabs(grad[i]) >= scale) {
      EXPECT_EQ(sent.values[i], std::copysign(scale, grad[i]));
    }
}

TEST(Terngrad, OtherRoundsDrawOtherNumbers) {
  const std::vector<float> grad = harness::bell(kBlock);
  EXPECT_EQ(send("terngrad", grad, 3).payload, send("terngrad", grad, 3).payload);
  EXPECT_NE(send("terngrad", grad, 3).payload, send("terngrad", grad, 4).payload);
}

TEST(Nuqsgd, LevelsArePowersOfTwo) {
  const std::vector<float> grad = {12, -6, 3, 0, -0.0F};
  const EncodeOutput sent = send("nuqsgd:bits=3", grad);  // K = 3: 0, 1/4, 1/2, 1
  EXPECT_EQ(sent.values, grad);
  ASSERT_EQ(sent.payload.size(), 8U);
  EXPECT_EQ(wire::get<float>(&sent.payload[2]), 12.0F);
  // 3 | (4 + 2) << 3 | 1 << 6 | 0 << 9 | 4 << 12
  EXPECT_EQ(wire::get<std::uint16_t>(&sent.payload[6]), 0x4073);
}

TEST(Nuqsgd, RoundsToTheNeighboursInProportion) {
  constexpr std::size_t kValues = 65'536;
  struct {
    float value, low, high, share;
  } const cases[] = {{0.0625F, 0, 0.25F, 0.25F}, {0.3125F, 0.25F, 0.5F, 0.25F}, {0.875F, 0.5F, 1, 0.75F}};
  for (const auto& c : cases) {
    std::vector<float> grad(kValues, c.value);
    for (std::size_t i = 0; i < kValues; i += 1024) grad[i] = 1;
    double ups = 0, tries = 0;
    const EncodeOutput sent = send("nuqsgd:bits=3", grad);
    for (std::size_t i = 0; i < kValues; ++i) {
      if (i % 1024 == 0) continue;
      ASSERT_TRUE(sent.values[i] == c.low || sent.values[i] == c.high) << sent.values[i];
      ups += sent.values[i] == c.high;
      ++tries;
    }
    EXPECT_NEAR(ups, tries * c.share, 6 * std::sqrt(tries * c.share * (1 - c.share))) << c.value;
  }
}

TEST(Nuqsgd, EqualMagnitudesAreExactForAnyDraws) {
  for (const char* bits : {"2", "3", "4", "8"})
    for (const float size : {0.3F, 1.0F, 3e38F, 1e-39F}) {
      std::vector<float> grad(1024, size);
      grad[5] = -size;
      for (std::uint32_t round = 0; round < 8; ++round)
        ASSERT_EQ(send(std::string("nuqsgd:bits=") + bits, grad, round).values, grad) << size;
    }
}

TEST(Nuqsgd, FastEqualsReferenceOnAnyFloats) {
  for (const char* bits : {"2", "3", "4", "5", "6", "7", "8"})
    harness::expect_impls_agree(std::string("nuqsgd:bucket=256,bits=") + bits);
  harness::expect_impls_agree("nuqsgd:norm=l2");
}

// Shares on both sides of where each draw tips over, found from the draws themselves.
TEST(Nuqsgd, FastEqualsReferenceAtRoundingThresholds) {
  constexpr std::size_t kValues = 4096;
  Call call;
  call.seed = 5;
  call.round = 1;
  const std::uint64_t key = rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
  for (const int bits : {2, 4, 8})
    for (const float norm : {1.0F, 0.7F, 3e38F, 1e-41F}) {
      const int most = (1 << (bits - 1)) - 1;
      std::vector<float> grad(kValues);
      for (std::size_t i = 0; i < kValues; ++i) {
        const std::uint32_t draw = draw_high(key, static_cast<std::uint32_t>(i)) >> 9;
        const int level = static_cast<int>(i / 16 % static_cast<unsigned>(most));
        const float tips = level == 0
                               ? std::ldexp(static_cast<float>(draw), -22 - most)
                               : std::ldexp(2 - std::ldexp(static_cast<float>(draw), -23), level - most);
        grad[i] = std::min(tips * norm, norm);
        for (std::size_t step = 0; step < i % 5; ++step) grad[i] = std::nextafter(grad[i], i % 2 ? norm : 0);
      }
      for (std::size_t i = 0; i < kValues; i += 1024) grad[i] = norm;
      SCOPED_TRACE(std::to_string(bits) + " bits, norm " + std::to_string(norm));
      send("nuqsgd:bits=" + std::to_string(bits), grad);
    }
}

}  // namespace
}  // namespace tithe
