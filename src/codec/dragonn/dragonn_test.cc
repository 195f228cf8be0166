// SPDX-License-Identifier: Apache-2.0
#include "codec/dragonn/dragonn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/sparse_output.h"

namespace tithe::sparse {
namespace {

TEST(Dragonn, SendsIndexZero) {
  std::vector<float> grad(1000);
  grad[0] = 3;
  const SparseOutput sent = encode_all(dragonn_codec, call_of("dragonn"), grad, std::vector<float>(1000));
  EXPECT_EQ(sent.index, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(sent.value, (std::vector<float>{3}));
  EXPECT_EQ(sent.residual_out[0], 0);
}

// c candidates thrown into m slots: m (1 - (1 - 1/m)^c) win on average. All values are equal, so that all are
// candidates; each round hashes with a new key.
TEST(Dragonn, KeptFractionMatchesBallsInBins) {
  constexpr std::size_t n = 2000;
  constexpr int kRounds = 200;
  for (const double slots : {0.5, 1.0, 1.5, 2.0, 4.0, 8.0}) {
    Call call = call_of("dragonn:ratio=1,slots=" + std::to_string(slots));
    const double m = slots * n;
    const double expected = m * (1 - std::pow(1 - 1 / m, static_cast<double>(n)));
    // Variance of the number of filled slots.
    const double empty = std::pow(1 - 1 / m, static_cast<double>(n));
    const double variance =
        m * empty + m * (m - 1) * std::pow(1 - 2 / m, static_cast<double>(n)) - m * m * empty * empty;
    double sum = 0;
    for (int round = 0; round < kRounds; ++round) {
      call.round = static_cast<std::uint32_t>(round);
      const SparseOutput sent =
          encode_all(dragonn_codec, call, std::vector<float>(n, 1), std::vector<float>(n));
      sum += static_cast<double>(sent.index.size());
    }
    EXPECT_NEAR(sum / kRounds, expected, 5 * std::sqrt(variance / kRounds)) << "slots " << slots;
  }
}

TEST(Dragonn, CollidingValuesStayInTheResidualAndAreSentLater) {
  constexpr std::size_t n = 5000;
  Call call = call_of("dragonn:ratio=1,slots=1");
  std::vector<float> residual(n, 1);
  std::size_t sent_in_all = 0;
  for (std::uint32_t round = 0; round < 12; ++round) {
    call.round = round;
    const SparseOutput sent = encode_all(dragonn_codec, call, std::vector<float>(n), residual);
    sent_in_all += sent.index.size();
    residual = sent.residual_out;
  }
  EXPECT_EQ(sent_in_all, n);
  EXPECT_EQ(residual, std::vector<float>(n, 0));
}

TEST(Dragonn, SlotsBoundThePayloadAtAnyThreshold) {
  constexpr std::size_t n = 200'000;  // four blocks, the last one short
  const Call call = call_of("dragonn:ratio=0.001,slots=2");
  const SparseOutput sent = encode_all(dragonn_codec, call, std::vector<float>(n, 1), std::vector<float>(n));
  EXPECT_LE(sent.payload.size(), dragonn_codec.phases[0].bound(call.settings, n));
  EXPECT_EQ(sent.index.size(), 132U * 3 + 7);  // every slot of every block is won
}

}  // namespace
}  // namespace tithe::sparse
