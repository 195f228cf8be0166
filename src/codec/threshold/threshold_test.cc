// SPDX-License-Identifier: Apache-2.0
#include "codec/threshold/threshold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/sparse_output.h"

namespace tithe::sparse {
namespace {

TEST(Threshold, ConstantsAreSentFromTauOnAndNotBelow) {
  constexpr std::size_t n = 70'000;
  const float tau = 0.25F;
  const std::vector<float> none(n);
  const Call call = call_of("threshold:tau=0.25");
  for (const float sign : {1.0F, -1.0F}) {
    const SparseOutput at = encode_all(threshold_codec, call, std::vector<float>(n, sign * tau), none);
    EXPECT_EQ(at.index.size(), n);
    EXPECT_EQ(at.residual_out, none);
    const std::vector<float> below(n, sign * std::nextafter(tau, 0.0F));
    const SparseOutput kept = encode_all(threshold_codec, call, below, none);
    EXPECT_TRUE(kept.index.empty());
    EXPECT_EQ(kept.residual_out, below);
  }
}

TEST(Threshold, WhatIsHeldBackGrowsUntilItIsSent) {
  const Call call = call_of("threshold:tau=1");
  std::vector<float> residual_out(3);
  for (int round = 1; round <= 4; ++round) {
    const SparseOutput sent = encode_all(threshold_codec, call, {0.25F, -0.5F, 0.0F}, residual_out);
    EXPECT_EQ(sent.index.size(), round == 4 ? 2U : round == 2 ? 1U : 0U) << round;
    residual_out = sent.residual_out;
  }
  EXPECT_EQ(residual_out, std::vector<float>(3));
}

TEST(Threshold, SendsExactlyWhatReachesTau) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> grad(200'000), none(grad.size());
  for (float& v : grad) v = normal(rng);
  const SparseOutput sent = encode_all(threshold_codec, call_of("threshold:tau=2.5"), grad, none);
  std::size_t j = 0;
  for (std::uint32_t i = 0; i < grad.size(); ++i) {
    if (std::fabs(grad[i]) < 2.5F) continue;
    ASSERT_LT(j, sent.index.size());
    ASSERT_EQ(sent.index[j], i);
    ASSERT_EQ(sent.value[j++], grad[i]);
  }
  EXPECT_EQ(j, sent.index.size());
}

TEST(Threshold, ZerosAreNeverSent) {
  const SparseOutput sent =
      encode_all(threshold_codec, call_of("threshold:tau=0"), {0.0F, -0.0F, 1e-45F}, std::vector<float>(3));
  EXPECT_EQ(sent.index, (std::vector<std::uint32_t>{2}));
}

}  // namespace
}  // namespace tithe::sparse
