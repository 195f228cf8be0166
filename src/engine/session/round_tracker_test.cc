// SPDX-License-Identifier: Apache-2.0
#include "engine/session/round_tracker.h"

#include <gtest/gtest.h>

namespace tithe::engine {
namespace {

TEST(RoundTracker, counted_from_the_first_round_of_the_job) {
  RoundTracker rounds;
  EXPECT_FALSE(rounds.over());
  rounds.restore(7, 100);  // the state was saved before round 100
  EXPECT_EQ(rounds.job(), 7U);
  rounds.commit(true);
  EXPECT_TRUE(rounds.over());
  EXPECT_EQ(rounds.round(), 101U);
  EXPECT_EQ(rounds.committed(), 1U);
  EXPECT_EQ(rounds.in_session(105), 5U);
  EXPECT_EQ(rounds.in_job(5), 105U);
}

TEST(RoundTracker, IssuesTicketsFromOne) {
  RoundTracker rounds;
  EXPECT_FALSE(rounds.issued(0) || rounds.issued(1));
  EXPECT_EQ(rounds.next_ticket(), 1U);
  EXPECT_EQ(rounds.issue(), 1U);
  EXPECT_TRUE(rounds.issued(1));
  EXPECT_FALSE(rounds.issued(0) || rounds.issued(2));
}

TEST(RoundTracker, undone_once_until_the_next_commit) {
  RoundTracker rounds;
  rounds.commit(false);
  EXPECT_TRUE(rounds.last_dropped());
  rounds.commit(true);
  EXPECT_FALSE(rounds.last_dropped());
  ASSERT_TRUE(rounds.can_undo());
  rounds.undo();
  EXPECT_EQ(rounds.round(), 1U);
  EXPECT_TRUE(rounds.last_dropped());
  EXPECT_FALSE(rounds.can_undo());
  EXPECT_FALSE(rounds.keep_last());
  rounds.commit(true);
  EXPECT_TRUE(rounds.keep_last());
  EXPECT_FALSE(rounds.can_undo());
  SessionStats stats;
  rounds.report(stats);
  EXPECT_EQ(stats.rounds_undone, 1U);
}

TEST(RoundTracker, outside_time_excludes_calls_of_the_session) {
  RoundTracker rounds;
  rounds.hand_over(50, true, 8, true);
  EXPECT_EQ(rounds.away_ns(), 0U);  // the program has not left the session yet
  rounds.leave(100);
  rounds.add_blocked(20);
  rounds.hand_over(150, true, 8, true);
  EXPECT_EQ(rounds.away_ns(), 30U);
  rounds.add_blocked(1000);  // longer than the time since leave(): the clock was read earlier
  rounds.hand_over(160, false, 4, false);
  EXPECT_EQ(rounds.away_ns(), 0U);
  EXPECT_FALSE(rounds.by_program());
}

TEST(RoundTracker, SumsTimesAndBytes) {
  RoundTracker rounds;
  rounds.hand_over(100, true, 8, true);
  rounds.hand_over(130, false, 4, true);
  rounds.commit(true);
  rounds.add_times(150);
  SessionStats stats;
  rounds.report(stats);
  EXPECT_EQ(stats.exchange_ns, 50U);
  EXPECT_EQ(stats.exposed_ns, 20U);
  EXPECT_EQ(stats.gradient_bytes, 12U);
}

}  // namespace
}  // namespace tithe::engine
