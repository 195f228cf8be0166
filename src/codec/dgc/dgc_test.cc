// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "codec/encode_for_test.h"
#include "codec/registry.h"

namespace tithe::sparse {
namespace {

Sent encode_all(const Call& call, const std::vector<float>& grad, const std::vector<float>& residual) {
  const Sent want = encode(dgc_codec.reference(), dgc_codec, call, grad, residual);
  for (const Impl& impl : dgc_codec.impls)
    EXPECT_TRUE(encode(impl, dgc_codec, call, grad, residual) == want) << impl.name;
  return want;
}

std::vector<float> gaussian(std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> v(n);
  for (float& x : v) x = draw(rng);
  return v;
}

TEST(Dgc, SendsAboutTheRatioAndNeverMoreThanTheCap) {
  constexpr std::size_t n = 400'000;
  Call call = call_of("dgc:ratio=0.01,cap=1.2");
  double sum = 0;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    call.round = static_cast<std::uint32_t>(round);
    const Sent sent = encode_all(call, gaussian(n, 7), std::vector<float>(n));
    EXPECT_LE(sent.index.size(), 4800U);
    sum += static_cast<double>(sent.index.size());
  }
  // 400 hits are expected in each sample: the mean of ten rounds strays by about 1.6 %.
  EXPECT_NEAR(sum / kRounds, 4000, 0.1 * 4000);
}

TEST(Dgc, SampleIsDrawnAnewEachRoundAndOnEachRank) {
  const std::vector<float> grad = gaussian(100'000, 3);
  Call call = call_of("dgc:cap=2");
  const auto count = [&] { return encode_all(call, grad, std::vector<float>(grad.size())).index.size(); };
  const std::size_t first = count();
  EXPECT_EQ(count(), first);
  call.round = 1;
  const std::size_t second = count();
  call.seed = 99;
  const std::size_t third = count();
  EXPECT_TRUE(first != second || second != third);
}

TEST(Dgc, BeyondTheCapTheLargestAreSent) {
  // All equal: every value reaches the threshold, the first k are sent.
  const Sent equal =
      encode_all(call_of("dgc:ratio=0.01"), std::vector<float>(50'000, 2), std::vector<float>(50'000));
  ASSERT_EQ(equal.index.size(), 500U);
  EXPECT_EQ(equal.index.back(), 499U);
  // Few values that are not zero: the threshold falls to the smallest of them, and zeros are never sent.
  std::vector<float> few(50'000);
  for (std::size_t i = 0; i < 300; ++i) few[i * 160] = 1;
  EXPECT_EQ(encode_all(call_of("dgc:ratio=0.01"), few, std::vector<float>(50'000)).index.size(), 300U);
}

}  // namespace
}  // namespace tithe::sparse
