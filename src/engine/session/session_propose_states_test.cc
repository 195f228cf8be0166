// SPDX-License-Identifier: Apache-2.0
// Session::propose and saved states: a state has the choices of its last commit, and a lost rank is named.
#include <gtest/gtest.h>

#include "support/propose_steps.h"

namespace tithe {
namespace {

using testing::dyadic;
using testing::Floats;
using testing::gradient;
using testing::has;
using testing::play;
using testing::play_all;
using testing::play_until;
using testing::Ranks;
using testing::Step;
using testing::text;
using testing::with;
using State = Proposal::State;

TEST(SessionPropose, AStateContinuesWithTheChoicesOfItsLastCommit) {
  const auto options = with("topk:ratio=0.1");
  Ranks ranks(open_loop(2), options), again(open_loop(2), options);
  for (int round = 0; round < 3; ++round) play_all(ranks, round);
  ASSERT_TRUE(ranks[0].propose(R"({"a": "fp8"})").ok());
  int round = play_until(ranks, 3, State::kSwitched);
  // No round is committed under the new choices, so all ranks would resume with the old ones.
  EXPECT_TRUE(again[1].restore(*ranks[1].state()).ok());
  EXPECT_EQ(again[1].choices(), "");
  play_all(ranks, round++);
  std::vector<Step> mine(2), others(2);
  for (Rank r = 0; r < 2; ++r) {
    const Status s = again[r].restore(*ranks[r].state());
    ASSERT_TRUE(s.ok()) << text(s);
    EXPECT_EQ(again[r].choices(), ranks[r].choices());
  }
  for (int k = 0; k < 3; ++k, ++round) {
    play_all(ranks, round, &mine);
    play_all(again, round, &others);
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(mine[r].a, others[r].a);
      EXPECT_EQ(mine[r].b, others[r].b);
    }
  }
  EXPECT_TRUE(has(again[0].plan_text(), "fp8"));
  // A session opened with the same choices accepts the state too. A session with other choices refuses it; the error
  // says how to open the session.
  const std::vector<std::uint8_t> state = *ranks[0].state();
  const auto restored = [&](std::string choices) {
    SessionOptions o = options;
    o.choices = std::move(choices);
    Ranks two(open_loop(2), o);
    return two[0].restore(state);
  };
  EXPECT_TRUE(restored(R"({"a": "fp8"})").ok());
  const Status s = restored(R"({"a": "bf16"})");
  EXPECT_EQ(s.code(), Code::kInvalid);
  EXPECT_TRUE(has(s.what(), "open it without")) << text(s);
}

// The state holds codec memories and residuals of the last commit until the first round under the new choices is
// committed.
TEST(SessionPropose, AStateAfterAFailureIsThatOfTheLastCommit) {
  SessionOptions options = with("powersgd:rank=2");
  options.timeout = std::chrono::milliseconds(200);
  options.patience = std::chrono::milliseconds(2000);
  Ranks ranks(open_loop(2), options), again(open_loop(2), options);
  const auto matrix = [&](Rank r, Ranks& on, int round) {
    Floats v = dyadic(64 * 32, 5 * r + round);
    const Tensor t{.key = "w", .data = v.data(), .n = v.size(), .row = 32};
    const auto ticket = on[r].sync({&t, 1});
    Status s = ticket.status();
    if (s.ok()) s = on[r].wait(*ticket);
    if (s.ok()) s = on[r].commit();
    return std::pair{s, v};
  };
  for (int round = 0; round < 3; ++round)
    ranks.each([&](Rank r) { ASSERT_TRUE(matrix(r, ranks, round).first.ok()); });
  ASSERT_TRUE(ranks[0].propose(R"({"*": "topk:ratio=0.1"})", 8).ok());
  for (int round = 3; round < 8; ++round)
    ranks.each([&](Rank r) { ASSERT_TRUE(matrix(r, ranks, round).first.ok()); });
  ASSERT_EQ(ranks[1].proposal().state, State::kSwitched);
  const std::vector<std::uint8_t> before = *ranks[1].state();
  ranks.close(0);
  EXPECT_EQ(matrix(1, ranks, 8).first.code(), Code::kPeerLost);
  EXPECT_EQ(*ranks[1].state(), before);
  const Status s = again[1].restore(before);
  EXPECT_TRUE(s.ok()) << text(s);
  EXPECT_EQ(again[1].choices(), "");
}

TEST(SessionPropose, ARankLostDuringAProposalIsNamed) {
  SessionOptions options = with("topk:ratio=0.1");
  options.timeout = std::chrono::milliseconds(200);
  options.patience = std::chrono::milliseconds(2000);
  Ranks ranks(open_loop(3), options);
  play_all(ranks, 0);
  ASSERT_TRUE(ranks[0].propose(R"({"*": "fp32"})").ok());
  ranks.close(1);
  ranks.each([&](Rank r) {
    if (r == 1) return;
    Step s = gradient(r, 1);
    const Status status = play(ranks[r], s);
    EXPECT_EQ(status.code(), Code::kPeerLost) << text(status);
    EXPECT_EQ(status.peer(), 1);
    if (r == 0) {
      EXPECT_EQ(ranks[r].proposal().state, State::kRefused);
    }
    EXPECT_TRUE(ranks[r].state().ok());
  });
  EXPECT_EQ(ranks[0].proposal().why.peer(), 1);
  EXPECT_FALSE(ranks[0].propose(R"({"*": "fp32"})").ok());
}

}  // namespace
}  // namespace tithe
