// SPDX-License-Identifier: Apache-2.0
#include "codec/dgc/dgc.h"

#include <gtest/gtest.h>

#include "support/draws.h"
#include "support/sparse_output.h"

namespace tithe::sparse {
namespace {

TEST(Dgc, SendsAboutTheRatioAndNeverMoreThanTheCap) {
  constexpr std::size_t n = 400'000;
  Call call = call_of("dgc:ratio=0.01,cap=1.2");
  double sum = 0;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    call.round = static_cast<std::uint32_t>(round);
    const SparseOutput sent = encode_all(dgc_codec, call, draws::bell(n, 1, 7), std::vector<float>(n));
    EXPECT_LE(sent.index.size(), 4800U);
    sum += static_cast<double>(sent.index.size());
  }
  // 400 hits are expected in each sample: the mean of ten rounds strays by about 1.6 %.
  EXPECT_NEAR(sum / kRounds, 4000, 0.1 * 4000);
}

TEST(Dgc, SampleIsDrawnAnewEachRoundAndOnEachRank) {
  const std::vector<float> grad = draws::bell(100'000, 1, 3);
  Call call = call_of("dgc:cap=2");
  const auto indices = [&] { return encode_all(dgc_codec, call, grad).index; };
  const std::vector<std::uint32_t> first = indices();
  EXPECT_EQ(indices(), first);
  call.round = 1;
  const std::vector<std::uint32_t> second = indices();
  EXPECT_NE(second, first);  // another sample, another threshold
  call.seed = 99;
  EXPECT_NE(indices(), second);
}

TEST(Dgc, BeyondTheCapTheLargestAreSent) {
  // All equal: every value reaches the threshold, the first k are sent.
  const SparseOutput equal = encode_all(dgc_codec, call_of("dgc:ratio=0.01"), std::vector<float>(50'000, 2),
                                        std::vector<float>(50'000));
  ASSERT_EQ(equal.index.size(), 500U);
  EXPECT_EQ(equal.index.back(), 499U);
  // Few values that are not zero: the threshold falls to the smallest of them, and zeros are never sent.
  std::vector<float> few(50'000);
  for (std::size_t i = 0; i < 300; ++i) few[i * 160] = 1;
  EXPECT_EQ(encode_all(dgc_codec, call_of("dgc:ratio=0.01"), few, std::vector<float>(50'000)).index.size(),
            300U);
}

}  // namespace
}  // namespace tithe::sparse
