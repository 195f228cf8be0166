// SPDX-License-Identifier: Apache-2.0
#include "codec/graddrop/graddrop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/draws.h"
#include "support/sparse_output.h"

namespace tithe::sparse {
namespace {

TEST(Graddrop, SendsAboutTheRatioAndNeverMore) {
  constexpr std::size_t n = 400'000;
  Call call = call_of("graddrop:ratio=0.01,sample=0.05");
  double sum = 0;
  int full = 0;
  constexpr int kRounds = 12;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    call.round = round;
    const std::size_t count = encode_all(graddrop_codec, call, draws::bell(n, 1, 7)).index.size();
    EXPECT_LE(count, 4000U);
    full += count == 4000U;
    sum += static_cast<double>(count);
  }
  // 128 hits in a sample: the count strays by 9 %, and what is above the ratio is cut to it.
  EXPECT_NEAR(sum / kRounds, 4000, 0.15 * 4000);
  EXPECT_GT(full, 0);
  EXPECT_LT(full, kRounds);
}

// Whatever the threshold was, nothing that is kept back is larger than what is sent.
TEST(Graddrop, WhatIsSentIsTheLargest) {
  const std::vector<float> grad = draws::bell(150'000, 1, 5);
  for (std::uint32_t round = 0; round < 4; ++round) {
    Call call = call_of("graddrop:ratio=0.02");
    call.round = round;
    const SparseOutput sent = encode_all(graddrop_codec, call, grad);
    float least = 1e30F;
    float most = 0;
    for (const float v : sent.value) least = std::min(least, std::fabs(v));
    for (const float v : sent.residual_out) most = std::max(most, std::fabs(v));
    EXPECT_LE(most, least);
  }
}

// Compared strictly, as HiPress does, equal values would never be sent.
TEST(Graddrop, EqualValuesAreSentLowestIndexFirst) {
  const SparseOutput sent = encode_all(graddrop_codec, call_of("graddrop"), std::vector<float>(50'000, -2));
  ASSERT_EQ(sent.index.size(), 500U);
  EXPECT_EQ(sent.index.back(), 499U);
}

}  // namespace
}  // namespace tithe::sparse
