// SPDX-License-Identifier: Apache-2.0
#include "engine/session/stragglers.h"

#include <gtest/gtest.h>

#include <array>

namespace tithe::engine {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST(Stragglers, OptionIsParsedAndInvalidTextsAreRefused) {
  EXPECT_EQ(parse_stragglers("off")->share, 0);
  const Result<Stragglers> all = parse_stragglers("share=0.5,without=3,ranks=2,level=10");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->share, 0.5);
  EXPECT_EQ(all->without, 3U);
  EXPECT_EQ(all->ranks, 2);
  EXPECT_TRUE(all->may_miss(1) && all->may_miss(8));
  EXPECT_FALSE(all->may_miss(0) || all->may_miss(9) || all->may_miss(10) || all->may_miss(19));
  EXPECT_FALSE(parse_stragglers("share=0.5")->may_miss(1));
  EXPECT_EQ(parse_stragglers("without=4")->share, 0.25);
  for (const char* wrong : {"", "on", "share", "share=", "share=0", "share=-1", "share=nan", "share=0.5,",
                            "without=0", "without=1.5", "without=65", "ranks=1", "level=10",
                            "share=1,share=1", "without=1,level=2", "without=1,ranks=0", "late=1"})
    EXPECT_EQ(parse_stragglers(wrong).status().code(), Code::kInvalid) << wrong;
}

// Feeds one window of rounds with these times per rank.
Straggler after(StragglerDetector& detector, const std::vector<std::vector<std::uint64_t>>& rounds) {
  for (std::size_t k = 0; k < kLateWindow; ++k)
    EXPECT_EQ(detector.take(rounds[k % rounds.size()]), k + 1 == kLateWindow);
  return detector.found();
}

TEST(Stragglers, AStragglerIsNamedWithItsCost) {
  StragglerDetector detector(0.25, 3);
  Straggler late = after(detector, {{100 * kMs, 110 * kMs, 150 * kMs}});
  EXPECT_EQ(late.rank, 2);
  EXPECT_NEAR(late.share, 150.0 / 110 - 1, 1e-9);
  EXPECT_EQ(late.own_ns, 150 * kMs);
  EXPECT_EQ(late.cost_ns, 40 * kMs);
  late = after(detector, {{100 * kMs, 100 * kMs, 100 * kMs}, {300 * kMs, 100 * kMs, 100 * kMs}});
  EXPECT_EQ(late.rank, 0) << "of two slow ranks, the one with the largest sum";
  EXPECT_EQ(late.cost_ns, 100 * kMs);
  EXPECT_EQ(after(detector, {{100 * kMs, 110 * kMs, 120 * kMs}}).rank, Status::kNoPeer)
      << "a delay of a tenth is below the threshold";
}

TEST(Stragglers, NoRankIsLateIfAllAreOrByNoise) {
  StragglerDetector detector(0.25, 4);
  EXPECT_EQ(after(detector, {{9'000 * kMs, 9'000 * kMs, 9'000 * kMs, 9'000 * kMs}}).rank, Status::kNoPeer);
  EXPECT_EQ(after(detector, {{kMs, kMs, kMs, 4 * kMs}}).rank, Status::kNoPeer) << "less than kMinLate";
  EXPECT_EQ(after(detector, {{0, 0, 0, 0}}).rank, Status::kNoPeer);
  StragglerDetector off(0, 2), alone(0.25, 1);
  const std::array<std::uint64_t, 2> two{0, 1000 * kMs};
  for (std::size_t k = 0; k < 2 * kLateWindow; ++k) {
    EXPECT_FALSE(off.take(two));
    EXPECT_FALSE(alone.take(std::span(two).first(1)));
  }
}

}  // namespace
}  // namespace tithe::engine
