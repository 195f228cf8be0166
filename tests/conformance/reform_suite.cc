// SPDX-License-Identifier: Apache-2.0
// Session::reform: the same session continues with other ranks.
#include <gtest/gtest.h>

#include "support/law_cases.h"
#include "support/ledger.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::at;
using testing::Data;
using testing::first_difference;
using testing::gradients;
using testing::has;
using testing::imbalance;
using testing::Ranks;
using testing::residuals;
using testing::synchronise;
using testing::text;
using testing::Values;
using Names = std::vector<std::string>;

constexpr std::size_t kSizes[] = {1, 33, 257, 4097};

SessionOptions named(Names names, const Spec& spec, int lanes = 0) {
  return {.lanes = lanes,
          .average = false,
          .min_values = 0,
          .part_values = 3000,
          .seed = 7,
          .members = std::move(names),
          .spec = spec};
}

Status step(Session& session, Rank rank, int round, Values* result = nullptr) {
  Values v = gradients(kSizes, Data::kDyadic, rank, round);
  Status s = synchronise(session, kSizes, v);
  if (result != nullptr) *result = std::move(v);
  return s;
}

// A rank dies in a round; the survivors repeat the round in a new world, with all their residuals.
TEST(SessionReform, SurvivorsContinueFromTheLastCommit) {
  for (const testing::LawCase& law : testing::law_cases())
    for (const int lanes : {0, 1}) {
      SCOPED_TRACE(law.label + ", lanes=" + std::to_string(lanes));
      SessionOptions o = named({"a", "b", "c", "d"}, law.spec, lanes);
      o.rules = law.rules;
      Ranks ranks(open_loop(4), o);
      ranks.each([&](Rank r) {
        for (int round = 0; round < 2; ++round) ASSERT_TRUE(step(ranks[r], r, round).ok());
      });
      ranks.close(1);
      auto transports = open_loop(3);
      std::vector<Values> left(3), grads(3), result(3), kept(3);
      ranks.each([&](Rank r) {
        if (r == 1) return;
        const Status failed = step(ranks[r], r, 2);
        EXPECT_EQ(failed.peer(), 1) << text(failed);
        const Rank now = r == 0 ? 0 : r - 1;
        left[at(now)] = residuals(ranks[r], kSizes);
        const auto state = *ranks[r].state();
        const Status s = ranks[r].reform(std::move(transports[at(now)]), {"a", "c", "d"}, 1);
        ASSERT_TRUE(s.ok()) << text(s);
        EXPECT_EQ(ranks[r].rank(), now);
        EXPECT_EQ(ranks[r].world(), 3);
        EXPECT_EQ(first_difference(residuals(ranks[r], kSizes), left[at(now)]), "");
        grads[at(now)] = gradients(kSizes, Data::kDyadic, r, 2);
        const Status done = step(ranks[r], r, 2, &result[at(now)]);
        ASSERT_TRUE(done.ok()) << text(done);
        kept[at(now)] = residuals(ranks[r], kSizes);
        const SessionStats stats = ranks[r].stats();
        EXPECT_EQ(stats.rounds, 3U) << "sums go on";
        EXPECT_EQ(stats.ranks_lost, 1U);
        EXPECT_EQ(stats.epoch, 1U);
      });
      for (std::size_t r = 1; r < 3; ++r) ASSERT_EQ(first_difference(result[r], result[0]), "") << r;
      const bool exact = law.traits().exact_ledger;
      const testing::Imbalance off = imbalance(grads, left, result[0], kept, law.traits(), exact);
      ASSERT_LE(off.times, exact ? 0 : 1) << off;
      EXPECT_TRUE(has(ranks[0].messages().front(), "which are unknown: 'b'"));
    }
}

// Between two rounds, without a failure: a new rank gets the replicated state and continues bit for bit with the
// others.
TEST(SessionReform, NewRankContinuesWithTheOthers) {
  for (const char* codec : {"topk:ratio=0.05", "powersgd", "dgc:ratio=0.1,feedback=momentum", "fp8"}) {
    SCOPED_TRACE(codec);
    Ranks ranks(open_loop(2), named({"a", "b"}, *parse_spec(codec)));
    ranks.each([&](Rank r) {
      for (int round = 0; round < 3; ++round) ASSERT_TRUE(step(ranks[r], r, round).ok());
    });
    const auto common = *ranks[1].common_state();
    const Names members = {"b", "a", "new"};
    auto transports = open_loop(3);
    SessionOptions o = named(members, *parse_spec(codec));
    o.epoch = 5;
    std::unique_ptr<Session> fresh;
    std::vector<Values> result(3);
    const auto go_on = [&](Session& session, Rank rank) {
      for (int round = 3; round < 5; ++round) {
        const Status s = step(session, rank, round, &result[at(rank)]);
        ASSERT_TRUE(s.ok()) << text(s);
      }
    };
    std::thread visitor([&] {
      fresh = std::move(*Session::open(std::move(transports[2]), o));
      const ByteView given(common);
      ASSERT_TRUE(fresh->restore(std::span(&given, 1)).ok());
      for (const std::vector<float>& unsent : residuals(*fresh, kSizes))
        for (const float v : unsent) ASSERT_EQ(v, 0.0F);
      go_on(*fresh, 2);
    });
    ranks.each([&](Rank r) {
      const Values unsent = residuals(ranks[r], kSizes);
      const Status s = ranks[r].reform(std::move(transports[at(1 - r)]), members, 5);
      ASSERT_TRUE(s.ok()) << text(s);
      EXPECT_EQ(first_difference(residuals(ranks[r], kSizes), unsent), "");
      go_on(ranks[r], 1 - r);
      EXPECT_EQ(ranks[r].stats().ranks_lost, 0U);
    });
    visitor.join();
    for (std::size_t r = 1; r < 3; ++r) EXPECT_EQ(first_difference(result[r], result[0]), "") << r;
  }
}

TEST(SessionReform, RefusalsLeaveTheSessionUnchanged) {
  Ranks ranks(open_loop(2), named({"a", "b"}, *parse_spec("topk")));
  ranks.each([&](Rank r) {
    ASSERT_TRUE(step(ranks[r], r, 0).ok());
    Session& s = ranks[r];
    const auto refused = [&](std::unique_ptr<Transport> t, Names names, std::uint64_t epoch) {
      const Status status = s.reform(std::move(t), std::move(names), epoch);
      EXPECT_EQ(status.code(), Code::kInvalid) << text(status);
      return status.what();
    };
    const std::string me = r == 0 ? "a" : "b";
    const auto one = [] { return std::move(open_loop(1)[0]); };
    EXPECT_TRUE(has(refused(nullptr, {me}, 1), "needs a transport"));
    EXPECT_TRUE(has(refused(one(), {}, 1), "members must name the ranks"));
    EXPECT_TRUE(has(refused(one(), {me, "c"}, 1), "2 names for 1 ranks"));
    EXPECT_TRUE(has(refused(one(), {"c"}, 1), "member 0 of the new world is 'c'"));
    EXPECT_TRUE(has(refused(one(), {me}, 0), "epoch=0 must be greater"));
    EXPECT_TRUE(step(ranks[r], r, 1).ok()) << "the world is unchanged";
  });
}

TEST(SessionReform, RanksWithAnotherEpochAreNamed) {
  Ranks ranks(open_loop(3), named({"a", "b", "c"}, *parse_spec("topk")));
  ranks.each([&](Rank r) { ASSERT_TRUE(step(ranks[r], r, 0).ok()); });
  auto transports = open_loop(3);
  ranks.each([&](Rank r) {
    ASSERT_TRUE(ranks[r].reform(std::move(transports[at(r)]), {"a", "b", "c"}, r == 2 ? 2 : 1).ok());
    const Status s = step(ranks[r], r, 1);
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 2) << text(s);
  });
}

// A rank at another round is named, and is never accepted.
TEST(SessionReform, RanksInAnotherRoundAreNamed) {
  SessionOptions o = named({"a", "b", "c"}, *parse_spec("topk"));
  o.undo = true;
  Ranks ranks(open_loop(3), o);
  ranks.each([&](Rank r) { ASSERT_TRUE(step(ranks[r], r, 0).ok()); });
  ASSERT_TRUE(ranks[1].undo().ok());
  auto transports = open_loop(3);
  ranks.each([&](Rank r) {
    ASSERT_TRUE(ranks[r].reform(std::move(transports[at(r)]), {"a", "b", "c"}, 1).ok());
    const Status s = step(ranks[r], r, 1);
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 1) << text(s);
    EXPECT_TRUE(has(s.what(), "round 0 instead of 1")) << text(s);
  });
}

// A second rank is lost during a reform: the state stays available, and the reform can be repeated.
TEST(SessionReform, CanBeCalledAgain) {
  SessionOptions o = named({"a", "b", "c", "d"}, *parse_spec("topk"));
  o.hosts = "2x2";
  Ranks ranks(open_loop(4), o);
  ranks.each([&](Rank r) { ASSERT_TRUE(step(ranks[r], r, 0).ok()); });
  const Values unsent = residuals(ranks[0], kSizes);
  const auto state = *ranks[0].state();
  const Status s = ranks[0].reform(std::move(open_loop(3)[0]), {"a", "b", "c"}, 1);
  EXPECT_EQ(s.code(), Code::kInvalid) << "hosts of four ranks: " << text(s);
  EXPECT_EQ(*ranks[0].state(), state);
  auto again = open_loop(4);
  ranks.each([&](Rank r) {
    ASSERT_TRUE(ranks[r].reform(std::move(again[at(r)]), {"a", "b", "c", "d"}, 2).ok());
    ASSERT_TRUE(step(ranks[r], r, 1).ok());
  });
  EXPECT_EQ(ranks[0].stats().epoch, 2U);
}

// A new rank with other options is named by all; the others continue without it and keep their residuals.
TEST(SessionReform, NewRankWithOtherOptionsIsNamed) {
  Ranks ranks(open_loop(2), named({"a", "b"}, *parse_spec("topk:ratio=0.05")));
  ranks.each([&](Rank r) { ASSERT_TRUE(step(ranks[r], r, 0).ok()); });
  const auto common = *ranks[0].common_state();
  auto three = open_loop(3);
  SessionOptions o = named({"a", "b", "new"}, *parse_spec("topk:ratio=0.1"));
  o.epoch = 1;
  std::thread visitor([&] {
    auto fresh = std::move(*Session::open(std::move(three[2]), o));
    const ByteView given(common);
    const Status refused = fresh->restore(std::span(&given, 1));
    EXPECT_EQ(refused.code(), Code::kInvalid) << text(refused);
    EXPECT_TRUE(has(refused.what(), "topk:ratio=0.05")) << text(refused);
    const Status s = step(*fresh, 2, 1);  // although the options were announced
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 2) << text(s);
  });
  auto two = open_loop(2);
  ranks.each([&](Rank r) {
    const Values unsent = residuals(ranks[r], kSizes);
    ASSERT_TRUE(ranks[r].reform(std::move(three[at(r)]), {"a", "b", "new"}, 1).ok());
    const Status s = step(ranks[r], r, 1);
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 2) << text(s);
    ASSERT_TRUE(ranks[r].reform(std::move(two[at(r)]), {"a", "b"}, 2).ok());
    EXPECT_EQ(first_difference(residuals(ranks[r], kSizes), unsent), "");
    EXPECT_TRUE(step(ranks[r], r, 1).ok());
  });
  visitor.join();
}

// A proposal that is pending when the world ends is dropped: no rank applies it, and new proposals are possible.
TEST(SessionReform, PendingProposalEndsWithItsWorld) {
  for (const bool agreed : {false, true}) {
    Ranks ranks(open_loop(3), named({"a", "b", "c"}, *parse_spec("topk:ratio=0.05")));
    ranks.each([&](Rank r) { ASSERT_TRUE(step(ranks[r], r, 0).ok()); });
    const std::string before = ranks[0].choices();
    ASSERT_TRUE(ranks[0].propose(R"({"*": "fp32"})", agreed ? 4 : 0).ok());
    if (agreed)
      ranks.each([&](Rank r) {
        for (int round = 1; round < 3; ++round) ASSERT_TRUE(step(ranks[r], r, round).ok());
      });
    auto two = open_loop(2);
    ranks.close(1);
    std::vector<Values> result(2);
    ranks.each([&](Rank r) {
      if (r == 1) return;
      const Rank now = r == 0 ? 0 : 1;
      ASSERT_TRUE(ranks[r].reform(std::move(two[at(now)]), {"a", "c"}, 1).ok());
      EXPECT_EQ(ranks[r].choices(), before);
      EXPECT_EQ(ranks[r].proposal().state, Proposal::State::kNone);
      if (now == 0) {
        EXPECT_TRUE(ranks[r].propose(R"({"*": "bf16"})", 0).ok());
      }
      for (int round = 3; round < 8; ++round)
        ASSERT_TRUE(step(ranks[r], r, round, &result[at(now)]).ok()) << round;
      EXPECT_EQ(ranks[r].proposal().state, Proposal::State::kSwitched);
    });
    EXPECT_EQ(first_difference(result[1], result[0]), "");
  }
}

// States saved before and after a change of members do not form a checkpoint.
TEST(SessionReform, StatesOfTwoEpochsAreRefused) {
  Ranks ranks(open_loop(3), named({"a", "b", "c"}, *parse_spec("topk:ratio=0.05")));
  ranks.each([&](Rank r) { ASSERT_TRUE(step(ranks[r], r, 0).ok()); });
  const auto early = *ranks[0].state();
  auto two = open_loop(2);
  ranks.close(1);
  ranks.each([&](Rank r) {
    if (r == 1) return;
    ASSERT_TRUE(ranks[r].reform(std::move(two[r == 0 ? 0 : 1]), {"a", "c"}, 1).ok());
  });
  const auto late = *ranks[2].state();
  Ranks others(open_loop(2), named({"a", "c"}, *parse_spec("topk:ratio=0.05")));
  others.each([&](Rank r) {
    const ByteView states[] = {early, late};
    const auto before = *others[r].state();
    const Status s = others[r].restore(states);
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_TRUE(has(s.what(), "worlds of 2 and 3 ranks")) << text(s);
    EXPECT_EQ(*others[r].state(), before) << "the state is unchanged";
  });
}

}  // namespace
}  // namespace tithe
