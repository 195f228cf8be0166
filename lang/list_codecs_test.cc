// SPDX-License-Identifier: Apache-2.0
// dgc, graddrop and threshold, programs of codecs/: the selection of values, and the codecs' traits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "support/draws.h"
#include "support/sparse_output.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sparse {
namespace {

const Codec& dgc() { return *find_codec("dgc"); }
const Codec& graddrop() { return *find_codec("graddrop"); }
const Codec& threshold() { return *find_codec("threshold"); }

TEST(Dgc, SendsAboutTheRatioAndNeverMoreThanTheCap) {
  constexpr std::size_t n = 400'000;
  Call call = call_of("dgc:ratio=0.01,cap=1.2");
  double sum = 0;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    call.round = static_cast<std::uint32_t>(round);
    const SparseOutput sent = encode_all(dgc(), call, draws::bell(n, 1, 7), std::vector<float>(n));
    EXPECT_LE(sent.index.size(), 4800U);
    sum += static_cast<double>(sent.index.size());
  }
  // 400 hits are expected in each sample: the mean of ten rounds strays by about 1.6 %.
  EXPECT_NEAR(sum / kRounds, 4000, 0.1 * 4000);
}

TEST(Dgc, SampleDiffersByRoundAndRank) {
  const std::vector<float> grad = draws::bell(100'000, 1, 3);
  Call call = call_of("dgc:cap=2");
  const auto indices = [&] { return encode_all(dgc(), call, grad).index; };
  const std::vector<std::uint32_t> first = indices();
  EXPECT_EQ(indices(), first);
  call.round = 1;
  const std::vector<std::uint32_t> second = indices();
  EXPECT_NE(second, first);  // another sample, another threshold
  call.seed = 99;
  EXPECT_NE(indices(), second);
}

TEST(Dgc, CapKeepsTheLargest) {
  // All equal: every value reaches the threshold, the first k are sent.
  const SparseOutput equal =
      encode_all(dgc(), call_of("dgc:ratio=0.01"), std::vector<float>(50'000, 2), std::vector<float>(50'000));
  ASSERT_EQ(equal.index.size(), 500U);
  EXPECT_EQ(equal.index.back(), 499U);
  // Few values that are not zero: the threshold falls to the smallest of them, and zeros are never sent.
  std::vector<float> few(50'000);
  for (std::size_t i = 0; i < 300; ++i) few[i * 160] = 1;
  EXPECT_EQ(encode_all(dgc(), call_of("dgc:ratio=0.01"), few, std::vector<float>(50'000)).index.size(), 300U);
}

TEST(Graddrop, SendsAboutTheRatioAndNeverMore) {
  constexpr std::size_t n = 400'000;
  Call call = call_of("graddrop:ratio=0.01,sample=0.05");
  double sum = 0;
  int full = 0;
  constexpr int kRounds = 12;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    call.round = round;
    const std::size_t count = encode_all(graddrop(), call, draws::bell(n, 1, 7)).index.size();
    EXPECT_LE(count, 4000U);
    full += count == 4000U;
    sum += static_cast<double>(count);
  }
  // 128 hits in a sample: the count has a deviation of 9 %, and the excess over the ratio is cut.
  EXPECT_NEAR(sum / kRounds, 4000, 0.15 * 4000);
  EXPECT_GT(full, 0);
  EXPECT_LT(full, kRounds);
}

// No residual value is larger than a sent value, with any threshold.
TEST(Graddrop, LargestValuesAreSent) {
  const std::vector<float> grad = draws::bell(150'000, 1, 5);
  for (std::uint32_t round = 0; round < 4; ++round) {
    Call call = call_of("graddrop:ratio=0.02");
    call.round = round;
    const SparseOutput sent = encode_all(graddrop(), call, grad);
    float least = 1e30F;
    float most = 0;
    for (const float v : sent.value) least = std::min(least, std::fabs(v));
    for (const float v : sent.residual_out) most = std::max(most, std::fabs(v));
    EXPECT_LE(most, least);
  }
}

// With a strict comparison, as in HiPress, equal values would never be sent.
TEST(Graddrop, EqualValuesAreSentLowestIndexFirst) {
  const SparseOutput sent = encode_all(graddrop(), call_of("graddrop"), std::vector<float>(50'000, -2));
  ASSERT_EQ(sent.index.size(), 500U);
  EXPECT_EQ(sent.index.back(), 499U);
}

TEST(Threshold, ConstantsAreSentFromTau) {
  constexpr std::size_t n = 70'000;
  const float tau = 0.25F;
  const std::vector<float> none(n);
  const Call call = call_of("threshold:tau=0.25");
  for (const float sign : {1.0F, -1.0F}) {
    const SparseOutput at = encode_all(threshold(), call, std::vector<float>(n, sign * tau), none);
    EXPECT_EQ(at.index.size(), n);
    EXPECT_EQ(at.residual_out, none);
    const std::vector<float> below(n, sign * std::nextafter(tau, 0.0F));
    const SparseOutput kept = encode_all(threshold(), call, below, none);
    EXPECT_TRUE(kept.index.empty());
    EXPECT_EQ(kept.residual_out, below);
  }
}

TEST(Threshold, ResidualGrowsUntilItIsSent) {
  const Call call = call_of("threshold:tau=1");
  std::vector<float> residual_out(3);
  for (int round = 1; round <= 4; ++round) {
    const SparseOutput sent = encode_all(threshold(), call, {0.25F, -0.5F, 0.0F}, residual_out);
    EXPECT_EQ(sent.index.size(), round == 4 ? 2U : round == 2 ? 1U : 0U) << round;
    residual_out = sent.residual_out;
  }
  EXPECT_EQ(residual_out, std::vector<float>(3));
}

TEST(Threshold, SendsExactlyTheValuesFromTau) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> grad(200'000), none(grad.size());
  for (float& v : grad) v = normal(rng);
  const SparseOutput sent = encode_all(threshold(), call_of("threshold:tau=2.5"), grad, none);
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
      encode_all(threshold(), call_of("threshold:tau=0"), {0.0F, -0.0F, 1e-45F}, std::vector<float>(3));
  EXPECT_EQ(sent.index, (std::vector<std::uint32_t>{2}));
}

TEST(Threshold, ErrorIsTauUnlessValuesAreRounded) {
  const auto error = [](const std::string& spec) {
    return threshold().traits.error(call_of(spec).settings, 1, 1);
  };
  EXPECT_EQ(error("threshold:tau=0.1"), 0.1F);
  EXPECT_EQ(error("threshold:tau=0.1,values=bf16"), std::numeric_limits<double>::infinity());
}

TEST(Dgc, StatesOnlyClaimedBounds) {
  EXPECT_EQ(dgc().traits.contraction, nullptr);
  EXPECT_EQ(dgc().traits.error, nullptr);
}

// Every value may be sent; the scratch holds the values once and the indices of one segment.
TEST(Threshold, ScratchIsOneCopyOfTheValues) {
  constexpr std::size_t n = 10'000'000;
  EXPECT_LT(threshold().scratch(call_of("threshold").settings, n), 4 * n + 1'000'000);
}

// With a sample of 3200 values, 32 of which reach the threshold, the 32 largest of n are sent.
TEST(Graddrop, ContractionFollowsTheSampledValues) {
  constexpr std::size_t n = 1'000'000;
  const auto contraction = [](const std::string& spec) {
    return graddrop().traits.contraction(call_of(spec).settings, n);
  };
  EXPECT_DOUBLE_EQ(contraction("graddrop"), 1 - 32.0 / n);
  EXPECT_DOUBLE_EQ(contraction("graddrop:values=8bit"), 1 - 32.0 / n * (1 - 0x1p-7));
  EXPECT_DOUBLE_EQ(contraction("graddrop:ratio=0.5,sample=1"), 1 - 128.0 / n);
}

}  // namespace
}  // namespace tithe::sparse
