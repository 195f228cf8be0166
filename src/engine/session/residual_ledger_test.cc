// SPDX-License-Identifier: Apache-2.0
#include "engine/session/residual_ledger.h"

#include <gtest/gtest.h>

#include <limits>

namespace tithe::engine {
namespace {

ResidualLedger ledger_with(std::vector<float> residual, std::uint64_t used = 0) {
  ResidualLedger ledger(3);
  feedback::TensorState& w = ledger.store().of("w");
  w.n = residual.size();
  w.used = used;
  w.loose_residual = std::move(residual);
  return ledger;
}

SessionStats stats_of(const ResidualLedger& ledger) {
  SessionStats stats;
  ledger.report(stats);
  return stats;
}

TEST(ResidualLedger, dropped_residuals_are_counted_and_logged) {
  ResidualLedger ledger = ledger_with({1, 0, 1e30F}, 65);
  EXPECT_TRUE(ledger.drop_excessive(65, true, false).empty());  // w is looked at in rounds 64, 128 and so on
  ledger.commit(0.5);
  const std::vector<std::string> messages = ledger.drop_excessive(65, true, true);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_TRUE(messages[0].starts_with("round 64: the residual of rank 3 for tensor 'w' reached 1e+30"));
  std::vector<float> now(3, 7.0F);
  ASSERT_TRUE(ledger.read("w", now).ok());
  EXPECT_EQ(now, std::vector<float>(3));
  EXPECT_EQ(stats_of(ledger).values_dropped, 2U);
  EXPECT_EQ(stats_of(ledger).sum_dropped, 1.0 + double{1e30F});
  EXPECT_EQ(stats_of(ledger).sum_decayed, 0.5);
}

TEST(ResidualLedger, undone_sums_are_reversed) {
  ResidualLedger ledger = ledger_with({1, 0, 1e30F}, 65);
  ledger.commit(0.5);
  ASSERT_EQ(ledger.drop_excessive(65, true, true).size(), 1U);
  ledger.undo();
  EXPECT_EQ(stats_of(ledger).values_dropped, 0U);
  EXPECT_EQ(stats_of(ledger).sum_dropped, 0.0);
  EXPECT_EQ(stats_of(ledger).sum_decayed, 0.0);
}

TEST(ResidualLedger, alone_decides_every_64_rounds_and_in_dropped_rounds) {
  ResidualLedger ledger = ledger_with({1e30F});
  EXPECT_TRUE(ledger.drop_excessive(63, true, false).empty());
  EXPECT_EQ(ledger.drop_excessive(64, true, false).size(), 1U);
  ResidualLedger dropped_round = ledger_with({1e30F});
  EXPECT_EQ(dropped_round.drop_excessive(63, false, false).size(), 1U);
}

TEST(ResidualLedger, ReadsAndRestoresBySize) {
  ResidualLedger ledger = ledger_with({1, 2});
  std::vector<float> out(2);
  EXPECT_TRUE(ledger.read("w", out).ok());
  EXPECT_EQ(out, (std::vector<float>{1, 2}));
  out.resize(3);
  EXPECT_EQ(ledger.read("w", out).code(), Code::kInvalid);
  EXPECT_EQ(ledger.read("v", out).code(), Code::kInvalid);
  feedback::ResidualStore::Map saved;
  saved["w"].n = 3;
  EXPECT_EQ(ledger.restore(std::move(saved)).code(), Code::kInvalid);
  EXPECT_EQ(ledger.store().find("w")->loose_residual.size(), 2U);
}

TEST(ResidualLedger, ALateGradientEntersTheResidualOrIsCounted) {
  ResidualLedger ledger = ledger_with({1, 2});
  EXPECT_EQ(ledger.add_unsent("w", std::vector<float>{10, 20}, 4), "");
  EXPECT_EQ(ledger.store().find("w")->loose_residual, (std::vector<float>{11, 22}));
  const std::vector<float> bad{5, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(ledger.add_unsent("w", bad, 4).starts_with("round 4 continued without rank 3"));
  EXPECT_EQ(ledger.store().find("w")->loose_residual, (std::vector<float>{11, 22}));
  EXPECT_EQ(stats_of(ledger).values_dropped, 1U);
  EXPECT_EQ(stats_of(ledger).sum_dropped, 5.0);
}

TEST(ResidualLedger, CountsLostResidualsByKey) {
  ResidualLedger ledger(0);
  ledger.discard_lost({{"w", {1, 0.25}}, {"v", {3, 1}}});
  ledger.discard_lost({{"w", {2, 0.5}}});
  ledger.lose_unknown(2);
  EXPECT_EQ(stats_of(ledger).ranks_lost, 2U);
  EXPECT_EQ(stats_of(ledger).values_lost, 6U);
  EXPECT_EQ(stats_of(ledger).sum_lost, 1.75);
  EXPECT_EQ(ledger.lost().at("w").values, 3U);
}

}  // namespace
}  // namespace tithe::engine
