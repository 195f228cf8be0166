// SPDX-License-Identifier: Apache-2.0
#include "engine/run/control_channel.h"

#include <gtest/gtest.h>

#include "engine/run/operations.h"
#include "support/runner_parts.h"

namespace tithe::engine {
namespace {

TEST(ControlChannel, cards_of_all_ranks_agree_a_layout_and_release_its_jobs) {
  testing::RunnerPartsOf ranks(2);
  const Program program;
  for (const Rank r : {0, 1}) {
    Job& job = ranks[r].state.queue.add(program);
    job.card = {.world = 2, .codec = "fp32", .strategy = "ring"};
    ranks[r].agreement.write_card(job);
    ranks[r].state.queue.show(job);
  }
  ranks.turn();
  for (const Rank r : {0, 1}) {
    EXPECT_TRUE(ranks[r].state.queue.job(0).agreed);
    EXPECT_TRUE(ranks[r].control.take_released());
    EXPECT_FALSE(ranks[r].control.take_released());
    EXPECT_FALSE(ranks[r].control.cards_in_flight());
  }
}

TEST(ControlChannel, done_messages_agree_a_round) {
  testing::RunnerPartsOf ranks(3);
  for (const Rank r : {0, 1, 2}) {
    Rounds& rounds = ranks[r].state.rounds;
    rounds.begin(0);
    rounds.close(0);
    rounds.end_work(ranks[r].state.now());
    EXPECT_FALSE(ranks[r].control.done_pending()) << "the round is not agreed";
    ranks[r].control.send_soon();
    EXPECT_TRUE(ranks[r].control.has_pending());
  }
  ranks.turn();
  for (const Rank r : {0, 1, 2}) {
    EXPECT_TRUE(ranks[r].state.rounds.agreed());
    EXPECT_FALSE(ranks[r].control.done_pending()) << "all peers have the message";
  }
}

TEST(ControlChannel, an_ask_message_is_answered) {
  testing::RunnerPartsOf ranks(2);
  ranks[0].state.peer(1).ask_pending = true;
  ranks[0].control.send_soon();
  ranks.turn();
  EXPECT_EQ(ranks[0].state.peer(1).answers, 1U);
  EXPECT_EQ(ranks[0].state.peer(1).report.state, Report::State::kIdle);
}

TEST(ControlChannel, a_message_that_breaks_the_protocol_is_blamed_on_its_sender) {
  testing::RunnerPartsOf ranks(2);
  std::vector<std::uint8_t> frame(kControlBytes);
  frame.resize(write_done({.ended = 9, .begun = 9}, {.me = 1, .world = 2}, frame));
  ASSERT_TRUE(ranks[1].clock->send(0, kControlChannel, frame, control_op(kControlSend, 0)).ok());
  ranks[0].turn();
  ASSERT_FALSE(ranks[0].failures.open());
  EXPECT_EQ(ranks[0].state.shutdown.report_of(0)->blamed, 1);
}

TEST(ControlChannel, a_farewell_between_rounds_ends_no_session) {
  testing::RunnerPartsOf ranks(2);
  std::vector<std::uint8_t> evidence(kControlBytes), farewell(kControlBytes);
  evidence.resize(
      write_evidence({.finding = Finding::kLeft, .witness = 1, .silent_peers = {}}, {1, 2}, evidence));
  farewell.resize(
      write_farewell({.code = Code::kCancelled, .blamed = 1, .what = "it left"}, {1, 2}, farewell));
  for (const auto& frame : {evidence, farewell})
    ASSERT_TRUE(ranks[1].clock->send(0, kControlChannel, frame, control_op(kControlSend, 0)).ok());
  ranks[0].turn();
  ranks[0].turn();
  EXPECT_TRUE(ranks[0].failures.open());
  EXPECT_TRUE(ranks[0].state.peer(1).leaving);
}

}  // namespace
}  // namespace tithe::engine
