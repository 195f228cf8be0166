// SPDX-License-Identifier: Apache-2.0
#include "engine/run/failure_detector.h"

#include <gtest/gtest.h>

#include "support/runner_parts.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;

class FailureDetectorTest : public ::testing::Test {
 protected:
  // This rank ends a round, and so waits for rank 1.
  void wait_for_peer() {
    failures_.begin();
    state_.rounds.begin(0);
    state_.rounds.close(0);
    state_.rounds.end_work(state_.now());
  }
  // Checks the clocks every eighth of the timeout, as the communication lane does.
  void pass(milliseconds time, bool answers = false) {
    for (const Instant end = state_.now() + time; state_.now() < end && failures_.open();) {
      ranks_[0].clock->time += milliseconds(125);
      if (answers) failures_.record_sign(state_.peer(1), false);
      failures_.check();
    }
  }
  testing::RunnerPartsOf ranks_{3};
  RunnerState& state_ = ranks_[0].state;
  FailureDetector& failures_ = ranks_[0].failures;
};

TEST_F(FailureDetectorTest, watches_only_while_this_rank_waits) {
  EXPECT_FALSE(failures_.watching());
  wait_for_peer();
  EXPECT_TRUE(failures_.watching());
}

TEST_F(FailureDetectorTest, a_silent_peer_is_probed_and_then_lost) {
  wait_for_peer();
  pass(milliseconds(500));
  EXPECT_TRUE(state_.peer(1).ask_pending);
  EXPECT_TRUE(failures_.open());
  pass(milliseconds(2000));
  ASSERT_FALSE(failures_.open());
  EXPECT_EQ(state_.shutdown.report_of(0)->finding, Finding::kSilent);
  EXPECT_TRUE(state_.shutdown.silent(1));
}

TEST_F(FailureDetectorTest, a_peer_that_answers_is_alive) {
  state_.peer(2).done = 1;
  wait_for_peer();
  pass(milliseconds(5000), true);
  EXPECT_TRUE(failures_.open());
}

TEST_F(FailureDetectorTest, time_without_checks_counts_against_no_peer) {
  wait_for_peer();
  ranks_[0].clock->time += std::chrono::hours(1);
  failures_.check();
  EXPECT_TRUE(failures_.open());
}

TEST_F(FailureDetectorTest, a_lost_peer_that_is_not_awaited_ends_no_session) {
  failures_.lose(2, {Code::kPeerLost, "connection reset"});
  EXPECT_TRUE(failures_.open());
  EXPECT_EQ(failures_.present().peer(), 2);
  EXPECT_EQ(failures_.missed(), std::vector<Rank>{2});
}

TEST_F(FailureDetectorTest, the_first_failure_counts_and_drops_all_frames) {
  failures_.accuse({Code::kCorrupt, "wrong bytes", 1});
  failures_.accuse({Code::kCorrupt, "more wrong bytes", 2});
  EXPECT_EQ(state_.shutdown.report_of(0)->blamed, 1);
  failures_.withdraw();
  EXPECT_TRUE(state_.shutdown.verdict().ok()) << "withdrawing later changes nothing";
}

}  // namespace
}  // namespace tithe::engine
