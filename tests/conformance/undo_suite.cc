// SPDX-License-Identifier: Apache-2.0
// Session::undo restores the state from before the round.
#include <gtest/gtest.h>

#include <limits>

#include "support/law_cases.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::Data;
using testing::first_difference;
using testing::gradients;
using testing::has;
using testing::of_any_job;
using testing::Ranks;
using testing::synchronise;
using testing::text;
using testing::Values;

constexpr int kWorld = 3;
constexpr std::size_t kSizes[] = {1, 33, 257, 4097};

SessionOptions with(const Spec& spec, std::string_view strategy = "auto") {
  return {.strategy = std::string(strategy),
          .undo = true,
          .lanes = 0,
          .average = false,
          .min_values = 0,
          .part_values = 3000,
          .seed = 7,
          .spec = spec};
}

// All tensors in one bucket: another layout than that of synchronise().
Status in_one_bucket(Session& session, Values& values) {
  std::vector<std::string> keys;
  for (const std::size_t n : kSizes) keys.push_back(testing::key_of(n));
  std::vector<Tensor> bucket;
  for (std::size_t k = 0; k < keys.size(); ++k)
    bucket.push_back({.key = keys[k], .data = values[k].data(), .n = values[k].size()});
  const Result<Ticket> ticket = session.sync(bucket);
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

Values step(Session& session, Rank rank, int round, bool other_layout = false) {
  Values v = gradients(kSizes, Data::kGaussian, rank, round);
  const Status s = other_layout ? in_one_bucket(session, v) : synchronise(session, kSizes, v);
  EXPECT_TRUE(s.ok()) << text(s);
  return v;
}

void take_back(Session& session) {
  const auto s = session.undo();
  ASSERT_TRUE(s.ok()) << text(s);
}

TEST(SessionUndo, RestoresTheStateBeforeTheRound) {
  for (const testing::LawCase& law : testing::law_cases())
    for (const std::string_view strategy : {"server", "gather"}) {
      SCOPED_TRACE(law.label + " by " + std::string(strategy));
      SessionOptions o = with(law.spec, strategy);
      o.rules = law.rules;
      Ranks undone(open_loop(kWorld), o), plain(open_loop(kWorld), o);
      if (!plain.open_status(0).ok()) continue;  // the codec and the strategy have no common law
      undone.each([&](Rank r) {
        Session& a = undone[r];
        Session& b = plain[r];
        const auto alike = [&](const char* when) {
          ASSERT_EQ(of_any_job(a), of_any_job(b)) << when << ", rank " << r;
        };
        (void)step(a, r, 50);
        take_back(a);
        for (int round = 0; round < 4; ++round) {
          const bool other = round == 2;
          ASSERT_EQ(first_difference(step(a, r, round, other), step(b, r, round, other)), "") << round;
          alike("after a round");
          (void)step(a, r, 100 + round, round == 1);  // changes the layout of tensors, and back
          take_back(a);
          alike("after a round that was taken back");
        }
        Values v = gradients(kSizes, Data::kGaussian, r, 9);
        if (r == 1) v[1][3] = std::numeric_limits<float>::infinity();
        ASSERT_TRUE(synchronise(a, kSizes, v).ok());
        EXPECT_TRUE(a.last_round_dropped());
        take_back(a);
        EXPECT_FALSE(a.last_round_dropped());
        alike("after a dropped round that was taken back");
        ASSERT_EQ(first_difference(step(a, r, 5), step(b, r, 5)), "");
        alike("at the end");
        EXPECT_EQ(a.stats().rounds, b.stats().rounds);
        EXPECT_EQ(a.stats().rounds_undone, 6U);
      });
    }
}

// After undo, a residual that a lossless codec had sent is a residual again.
TEST(SessionUndo, RestoresAdoptedResiduals) {
  Ranks undone(open_loop(kWorld), with(*parse_spec("topk:ratio=0.1"))),
      plain(open_loop(kWorld), with(*parse_spec("topk:ratio=0.1")));
  constexpr int kSwitch = 8;
  undone.each([&](Rank r) {
    for (Session* s : {&undone[r], &plain[r]})
      for (int round = 0; round < kSwitch; ++round) {
        if (r == 0 && round == 1) {
          ASSERT_TRUE(s->propose(R"({"*": "fp32"})", kSwitch).ok());
        }
        (void)step(*s, r, round);
      }
    EXPECT_TRUE(undone[r].undo().code() == Code::kInvalid) << "the choices have changed with it";
    ASSERT_EQ(undone[r].proposal().state, Proposal::State::kSwitched) << text(undone[r].proposal().why);
  });
  undone.each([&](Rank r) {
    (void)step(undone[r], r, 7);
    take_back(undone[r]);
    ASSERT_EQ(of_any_job(undone[r]), of_any_job(plain[r]));
    ASSERT_EQ(first_difference(step(undone[r], r, 3), step(plain[r], r, 3)), "");
    ASSERT_EQ(of_any_job(undone[r]), of_any_job(plain[r]));
  });
}

TEST(SessionUndo, RefusesWithoutACommittedRound) {
  SessionOptions o = with(*parse_spec("topk"));
  o.undo = false;
  Ranks off(open_loop(kWorld), o);
  off.each([&](Rank r) {
    (void)step(off[r], r, 0);
    EXPECT_TRUE(has(off[r].undo().what(), "open it with undo"));
  });
  Ranks on(open_loop(kWorld), with(*parse_spec("topk")));
  on.each([&](Rank r) {
    Session& s = on[r];
    EXPECT_EQ(s.undo().code(), Code::kInvalid) << "no round was committed";
    (void)step(s, r, 0);
    Values v = gradients(kSizes, Data::kDyadic, r, 1);
    const Tensor t{.key = "values1", .data = v[0].data(), .n = 1};
    const Result<Ticket> ticket = s.sync({&t, 1});
    ASSERT_TRUE(ticket.ok());
    EXPECT_TRUE(has(s.undo().what(), "round 1 is open"));
    ASSERT_TRUE(s.commit().ok());
    take_back(s);
    EXPECT_EQ(s.undo().code(), Code::kInvalid) << "once is all";
    (void)step(s, r, 1);
    ASSERT_TRUE(s.evaluated(0.5).ok());
    EXPECT_EQ(s.undo().code(), Code::kInvalid) << "the schedule has moved";
    (void)step(s, r, 2);
    ASSERT_TRUE(s.restore(*s.state()).ok());
    EXPECT_EQ(s.undo().code(), Code::kInvalid) << "it was restored";
  });
}

// All ranks undo the same round, or the next round fails: no round runs with residuals of different rounds.
TEST(SessionUndo, UndoOnOneRankFailsTheNextRound) {
  Ranks ranks(open_loop(kWorld), with(*parse_spec("topk")));
  ranks.each([&](Rank r) {
    (void)step(ranks[r], r, 0);
    (void)step(ranks[r], r, 1);
  });
  take_back(ranks[1]);
  ranks.each([&](Rank r) {
    Values v = gradients(kSizes, Data::kDyadic, r, 2);
    const Status s = synchronise(ranks[r], kSizes, v);
    EXPECT_FALSE(s.ok());
    EXPECT_NE(s.peer(), Status::kNoPeer) << text(s);
    EXPECT_TRUE(has(s.what(), "round")) << text(s);
  });
}

}  // namespace
}  // namespace tithe
