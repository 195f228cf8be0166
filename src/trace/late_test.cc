// SPDX-License-Identifier: Apache-2.0
#include "trace/late.h"

#include <gtest/gtest.h>

#include "support/traces.h"

namespace tithe::trace {
namespace {

struct Lateness {
  std::vector<Late> late;
  std::int64_t error = 0;  // maximum over all clocks
};

// A job in which one rank submits later by this time, by its own clock, in every `every`-th round.
Lateness lateness(const testing::SyntheticJob& job, int rank, std::int64_t later, std::uint32_t every = 1) {
  std::vector<RankTrace> traces = job.traces();
  for (TraceEvent& e : traces[static_cast<std::size_t>(rank)].events)
    if (e.op == "bucket" && e.round % every == 0) e.begin_ns += later;
  const Result<Matched> matched = match(traces);
  EXPECT_TRUE(matched.ok());
  const Result<std::vector<Clock>> clocks = align(traces, matched->messages);
  EXPECT_TRUE(clocks.ok());
  std::vector<std::vector<Round>> rounds;
  Lateness out;
  for (const RankTrace& t : traces) rounds.push_back(rounds_of(t));
  for (const Clock& c : *clocks) out.error = std::max(out.error, c.error_ns());
  out.late = late(rounds, *clocks);
  return out;
}

TEST(Late, FindsTheLateRankDespiteItsClock) {
  const testing::SyntheticJob job{.world = 4, .ahead = {0, 9'000'000'000, -4'000'000'000, 17}, .rounds = 12};
  const Lateness of = lateness(job, 2, 3'000'000);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(of.late[r].rounds, 10U) << "the first two are warm-up";
    EXPECT_EQ(of.late[r].last_in, r == 2 ? 10U : 0U) << r;
    if (r != 2) {
      EXPECT_EQ(of.late[r].cost_ns, 0) << r;
    }
  }
  EXPECT_LE(of.late[2].cost_ns, 3'000'000) << "the clocks' error is subtracted";
  EXPECT_GE(of.late[2].cost_ns, 3'000'000 - 3 * static_cast<double>(of.error));
  EXPECT_NEAR(of.late[2].share(), of.late[2].cost_ns / 10'000'000, 0.01);
}

TEST(Late, CostCountsOnlyLateRounds) {
  const Lateness of = lateness({.world = 3, .rounds = 12}, 1, 3'000'000, 2);
  EXPECT_EQ(of.late[1].last_in, 5U);
  EXPECT_LE(of.late[1].cost_ns, 1'500'000);
  EXPECT_GE(of.late[1].cost_ns, 1'500'000 - 2 * static_cast<double>(of.error));
}

// No rank is late by a difference below the clocks' error.
TEST(Late, LatenessBelowTheClockErrorIsIgnored) {
  for (const Late& one : lateness({.world = 3, .rounds = 12, .min_transit_ns = 500'000}, 1, 100'000).late) {
    EXPECT_EQ(one.last_in, 0U);
    EXPECT_EQ(one.share(), 0);
  }
  EXPECT_TRUE(late({}, {}).empty());
}

}  // namespace
}  // namespace tithe::trace
