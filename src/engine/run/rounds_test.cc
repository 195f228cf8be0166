// SPDX-License-Identifier: Apache-2.0
#include "engine/run/rounds.h"

#include <gtest/gtest.h>

#include <array>

namespace tithe::engine {
namespace {

class RoundsTest : public ::testing::Test {
 protected:
  void end_round(bool finite = true) {
    rounds_.begin(5);
    rounds_.close(40);
    if (!finite) rounds_.meet_nonfinite();
    rounds_.end_work({});
  }
  std::vector<Peer> peers_ = std::vector<Peer>(3);
  Rounds rounds_{1, peers_};
};

TEST_F(RoundsTest, a_round_is_agreed_when_every_rank_has_ended_it) {
  end_round();
  EXPECT_TRUE(rounds_.waits());
  EXPECT_TRUE(rounds_.take_done(0, {.ended = 1, .begun = 1, .away_ns = 7}).ok());
  EXPECT_FALSE(rounds_.agree_if_all_ended()) << "rank 2 works";
  EXPECT_TRUE(rounds_.take_done(2, {.ended = 1, .begun = 1, .finite = false}).ok());
  EXPECT_TRUE(rounds_.agree_if_all_ended());
  EXPECT_FALSE(rounds_.agree_if_all_ended()) << "it was agreed before";
  EXPECT_TRUE(rounds_.agreed());
  EXPECT_FALSE(rounds_.agreed_finite()) << "a value of rank 2 was not finite";
  std::array<std::uint64_t, 3> away = {};
  EXPECT_TRUE(rounds_.away(away));
  EXPECT_EQ(away, (std::array<std::uint64_t, 3>{7, 40, 0}));
}

TEST_F(RoundsTest, a_commit_of_another_rank_agrees_the_round) {
  end_round();
  EXPECT_FALSE(rounds_.learn_of_commit({.round = 5})) << "the sender has not committed round 5";
  EXPECT_TRUE(rounds_.learn_of_commit({.round = 6, .finite = true}));
  EXPECT_TRUE(rounds_.agreed_finite());
}

TEST_F(RoundsTest, impossible_done_messages_are_refused) {
  for (const Done done :
       {Done{}, Done{.ended = 2, .begun = 2}, Done{.ended = 0, .begun = 2}, Done{.ended = 1}}) {
    const Status s = rounds_.take_done(2, done);
    EXPECT_EQ(s.code(), Code::kCorrupt);
    EXPECT_EQ(s.peer(), 2);
  }
}

}  // namespace
}  // namespace tithe::engine
