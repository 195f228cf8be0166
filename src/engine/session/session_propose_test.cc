// SPDX-License-Identifier: Apache-2.0
// Session::propose: when choices change, which proposals are refused, and that no residual is lost.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "support/allocation_limit.h"
#include "support/ledger.h"
#include "support/propose_steps.h"

namespace tithe {
namespace {

using testing::Ranks;
using testing::text;
using State = Proposal::State;
using testing::at;
using testing::dyadic;
using testing::Floats;
using testing::gradient;
using testing::has;
using testing::play;
using testing::play_all;
using testing::play_until;
using testing::Step;
using testing::unsent;
using testing::with;

TEST(SessionPropose, AllRanksSwitchAtTheSameRound) {
  for (const int lanes : {0, 2}) {
    Ranks ranks(open_loop(3), with("topk:ratio=0.1", lanes));
    play_all(ranks, 0);
    EXPECT_EQ(ranks[0].proposal().state, State::kNone);
    EXPECT_EQ(ranks[0].choices(), "");
    Status s = ranks[0].propose(R"({"a": "fp32", "b": {"codec": "fp8", "strategy": "gather"}})");
    ASSERT_TRUE(s.ok()) << text(s);
    EXPECT_EQ(ranks[0].proposal().state, State::kUnderWay);
    const int next = play_until(ranks, 1, State::kSwitched);
    for (Rank r = 0; r < 3; ++r) {
      EXPECT_EQ(ranks[r].proposal().round, ranks[0].proposal().round);
      EXPECT_LE(ranks[r].proposal().round, static_cast<std::uint64_t>(next));
      EXPECT_TRUE(has(ranks[r].plan_text(), "600 values from 0, fp32 by server")) << ranks[r].plan_text();
      EXPECT_TRUE(has(ranks[r].plan_text(), "400 values from 600, fp8 by gather")) << ranks[r].plan_text();
      EXPECT_TRUE(has(ranks[r].choices(), R"("codec":"fp8")") || has(ranks[r].choices(), R"("codec": "fp8")"))
          << ranks[r].choices();
    }
    play_all(ranks, next);
    // Back to the choices of the options.
    s = ranks[0].propose("");
    ASSERT_TRUE(s.ok()) << text(s);
    play_until(ranks, next + 1, State::kSwitched);
    EXPECT_TRUE(has(ranks[2].plan_text(), "600 values from 0, topk:ratio=0.1 by server"))
        << ranks[2].plan_text();
  }
}

TEST(SessionPropose, TheRoundCanBeGiven) {
  Ranks ranks(open_loop(2), with("topk:ratio=0.1"));
  for (int round = 0; round < 3; ++round) play_all(ranks, round);
  ASSERT_TRUE(ranks[0].propose(R"({"*": "fp32"})", 8).ok());
  for (int round = 3; round < 8; ++round) {
    EXPECT_TRUE(has(ranks[0].plan_text(), "topk")) << round;
    play_all(ranks, round);
  }
  for (Rank r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks[r].proposal().state, State::kSwitched);
    EXPECT_EQ(ranks[r].proposal().round, 8U);
    EXPECT_TRUE(has(ranks[r].plan_text(), "fp32")) << ranks[r].plan_text();
  }
}

// Exact to the bit, while residuals move between lossy and lossless codecs, parts and groups.
TEST(Session, changed_choices_lose_nothing) {
  constexpr const char* kTurns[] = {
      R"({"*": "fp32"})",
      R"({"a": "blocks:ratio=0.1", "b": "fp32"})",
      R"({"b": {"codec": "topk:ratio=0.05", "priority": 2}})",
      R"({"*": {"codec": "topk:ratio=0.2", "group": "all"}})",
      R"({"a": {"codec": "dgc:ratio=0.1", "strategy": "gather"}, "b": {"codec": "fp32", "strategy": "ring"}})",
      "{}",
  };
  Ranks ranks(open_loop(3), with("topk:ratio=0.05"));
  std::vector<Step> before(3), after(3), results(3);
  for (Rank r = 0; r < 3; ++r) before[at(r)] = {Floats(600), Floats(400)};
  int switches = 0;
  for (int round = 0; round < 60; ++round) {
    if (ranks[0].proposal().state != State::kUnderWay && ranks[0].proposal().state != State::kAgreed &&
        round > 1 && switches < std::ssize(kTurns)) {
      const Status s = ranks[0].propose(kTurns[switches++]);
      ASSERT_TRUE(s.ok()) << text(s);
    }
    play_all(ranks, round, &results);
    for (Rank r = 0; r < 3; ++r) after[at(r)] = unsent(ranks[r]);
    for (const bool first : {true, false}) {
      const auto part = [first](const Step& s) -> const Floats& { return first ? s.a : s.b; };
      for (std::size_t i = 0; i < part(results[0]).size(); ++i) {
        double put_in = 0, came_out = part(results[0])[i];
        for (Rank r = 0; r < 3; ++r) {
          put_in += double{part(gradient(r, round))[i]} + double{part(before[at(r)])[i]};
          came_out += part(after[at(r)])[i];
          ASSERT_EQ(part(results[at(r)])[i], part(results[0])[i]);
        }
        ASSERT_EQ(put_in, came_out) << "round " << round << ", value " << i << "\n" << ranks[0].plan_text();
      }
    }
    before = after;
  }
  EXPECT_EQ(switches, std::ssize(kTurns));
  EXPECT_EQ(ranks[0].proposal().state, State::kSwitched);
}

// Parts with feedback=none that receive a residual send it, and keep a residual from then on: the sum of old and new
// unsent values.
TEST(SessionPropose, ACodecWithoutFeedbackSendsTheResidual) {
  Ranks ranks(open_loop(2), with("topk:ratio=0.05"));
  for (int round = 0; round < 3; ++round) play_all(ranks, round);
  ASSERT_TRUE(ranks[0].propose(R"({"*": "topk:ratio=0.2,feedback=none"})").ok());
  play_until(ranks, 3, State::kSwitched);
  double sum = 0;
  for (int round = 0; round < 30; ++round)
    ranks.each([&](Rank r) {
      Step s{Floats(600), Floats(400)};
      ASSERT_TRUE(play(ranks[r], s).ok());
      if (r == 0)
        for (const float v : s.a) sum += std::fabs(v);
    });
  EXPECT_GT(sum, 0);
  for (Rank r = 0; r < 2; ++r)
    EXPECT_EQ(unsent(ranks[r]).a, Floats(600)) << "the whole residual must be sent";
}

// The same jobs with different numbers of lanes. Dropped rounds must change nothing.
TEST(SessionPropose, LanesChangeNoBit) {
  std::vector<Step> first;
  for (const int lanes : {0, 1, 3}) {
    Ranks ranks(open_loop(3), with("topk:ratio=0.05", lanes));
    std::vector<Step> results(3);
    for (int round = 0; round < 4; ++round) play_all(ranks, round);
    ASSERT_TRUE(ranks[0].propose(R"({"a": "bf16", "b": {"codec": "onebit", "priority": 1}})").ok());
    for (int k = 0; k < 10'000 && ranks[2].proposal().state != State::kSwitched; ++k)
      ranks.each([&](Rank r) {
        Step s = gradient(r, 0);
        s.a[5] = std::numeric_limits<float>::quiet_NaN();
        ASSERT_TRUE(play(ranks[r], s).ok());
      });
    for (int round = 4; round < 8; ++round) play_all(ranks, round, &results);
    EXPECT_TRUE(has(ranks[0].plan_text(), "onebit")) << ranks[0].plan_text();
    if (first.empty()) first = results;
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(results[r].a, first[0].a) << lanes << " lanes, rank " << r;
      EXPECT_EQ(results[r].b, first[0].b) << lanes << " lanes, rank " << r;
    }
  }
}

// Choices change several times without a committed round between: new parts, groups and orders, also while a lossless
// codec has not yet sent a residual.
TEST(SessionPropose, ResidualsSurviveDroppedRounds) {
  Ranks ranks(open_loop(2), with("topk:ratio=0.05"));
  for (int round = 0; round < 3; ++round) play_all(ranks, round);
  const Step had[] = {unsent(ranks[0]), unsent(ranks[1])};
  EXPECT_NE(had[0].b, Floats(400));
  for (const char* choices :
       {R"({"*": "fp32"})", R"({"*": {"codec": "topk:ratio=0.1", "group": "all"}})",
        R"({"b": {"codec": "onebit", "priority": 1}})", R"({"*": {"codec": "fp32", "group": "all"}})",
        R"({"a": "bf16", "b": "topk:feedback=none"})", R"({"*": "fp32"})"}) {
    const Status s = ranks[0].propose(choices);
    ASSERT_TRUE(s.ok()) << text(s);
    for (int k = 0; k < 100 && ranks[0].proposal().state != State::kSwitched; ++k)
      ranks.each([&](Rank r) {
        Step bad = gradient(r, 0);
        bad.a[5] = std::numeric_limits<float>::quiet_NaN();
        ASSERT_TRUE(play(ranks[r], bad).ok());
      });
    for (Rank r = 0; r < 2; ++r) {
      ASSERT_EQ(unsent(ranks[r]).a, had[at(r)].a) << choices;
      ASSERT_EQ(unsent(ranks[r]).b, had[at(r)].b) << choices;
    }
  }
  ranks.each([&](Rank r) {
    Step sent{Floats(600), Floats(400)};
    ASSERT_TRUE(play(ranks[r], sent).ok());
    for (std::size_t i = 0; i < 600; ++i) ASSERT_EQ(sent.a[i], had[0].a[i] + had[1].a[i]) << i;
    for (std::size_t i = 0; i < 400; ++i) ASSERT_EQ(sent.b[i], had[0].b[i] + had[1].b[i]) << i;
    EXPECT_EQ(unsent(ranks[r]).b, Floats(400));
  });
}

TEST(SessionPropose, InvalidProposalsChangeNothing) {
  Ranks ranks(open_loop(2), with("topk:ratio=0.1"));
  struct Case {
    const char* choices;
    std::uint64_t round;
    Code code;
    std::string_view says;
  };
  Status early = ranks[0].propose(R"({"a": "fp32"})");
  EXPECT_TRUE(has(early.what(), "propose after the first commit()")) << text(early);
  for (int round = 0; round < 3; ++round) play_all(ranks, round);
  for (const Case& c : {Case{R"({"*": "fp23"})", 0, Code::kInvalid, "did you mean 'fp32'?"},
                        {"{", 0, Code::kInvalid, ""},
                        {R"({"aa": "fp32"})", 0, Code::kInvalid, "did you mean 'a'?"},
                        {R"({"*": "dgc:feedback=momentum"})", 0, Code::kInvalid, "open a new session"},
                        {R"({"*": {"codec": "powersgd", "group": "g"}})", 0, Code::kInvalid, "group 'g'"},
                        {R"({"*": {"inside": "bf16"}})", 0, Code::kInvalid, "'inside'"},
                        {R"({"*": "fp32"})", 3, Code::kInvalid, "the first possible round is 4"},
                        {R"({"*": "fp32"})", 1, Code::kInvalid, "the first possible round is 4"}}) {
    const Status s = ranks[0].propose(c.choices, c.round);
    EXPECT_EQ(s.code(), c.code) << c.choices << ": " << text(s);
    EXPECT_TRUE(has(s.what(), c.says)) << text(s);
    EXPECT_EQ(ranks[0].proposal().state, State::kNone);
  }
  const Status elsewhere = ranks[1].propose(R"({"*": "fp32"})");
  EXPECT_EQ(elsewhere.code(), Code::kInvalid);
  EXPECT_TRUE(has(elsewhere.what(), "call propose() on rank 0")) << text(elsewhere);

  ASSERT_TRUE(ranks[0].propose(R"({"*": "fp32"})", 20).ok());
  const Status second = ranks[0].propose(R"({"*": "bf16"})");
  EXPECT_EQ(second.code(), Code::kInvalid);
  EXPECT_TRUE(has(second.what(), "pending already")) << text(second);
  play_all(ranks, 3);
  EXPECT_TRUE(has(ranks[1].plan_text(), "topk:ratio=0.1")) << ranks[1].plan_text();
}

// Without lanes no messages are exchanged between rounds: one round is too short to send this large proposal.
TEST(SessionPropose, ATooEarlyRoundIsRefusedOnAllRanks) {
  Ranks ranks(open_loop(2), with("topk:ratio=0.1"));
  play_all(ranks, 0);
  std::string many = "{";
  for (int k = 0; k < 3000; ++k) many += "\"nothing" + std::to_string(k) + "*\": \"fp32\", ";
  ASSERT_TRUE(ranks[0].propose(many + R"("*": "bf16"})", 2).ok());
  int round = play_until(ranks, 1, State::kRefused);
  for (Rank r = 0; r < 2; ++r) {
    const Proposal p = ranks[r].proposal();
    EXPECT_EQ(p.why.peer(), 1);
    EXPECT_TRUE(has(p.why.what(), "rank 1 was not ready in time")) << text(p.why);
    EXPECT_TRUE(has(ranks[r].plan_text(), "topk:ratio=0.1"));
  }
  // The next proposal must not be affected.
  ASSERT_TRUE(ranks[0].propose(many + R"("*": "bf16"})").ok());
  round = play_until(ranks, round, State::kSwitched);
  EXPECT_TRUE(has(ranks[1].plan_text(), "bf16"));
}

// A codec file that is missing on one rank, or differs there.
TEST(SessionPropose, ARefusingRankGivesTheReasonAndAllKeepTheirChoices) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "tithe_propose";
  std::filesystem::create_directories(folder);
  const std::string file = folder / "mine.codec";
  std::filesystem::copy_file(std::filesystem::path(TITHE_SOURCE_DIR) / "codecs" / "onebit.codec", file,
                             std::filesystem::copy_options::overwrite_existing);
  Ranks ranks(open_loop(3), with("topk:ratio=0.1"));
  for (int round = 0; round < 3; ++round) play_all(ranks, round);
  const Step had = unsent(ranks[2]);
  ASSERT_TRUE(ranks[0].propose("{\"*\": \"" + file + "\"}").ok());
  std::filesystem::remove(file);  // before another rank reads it
  const int round = play_until(ranks, 3, State::kRefused);
  for (Rank r = 0; r < 3; ++r) {
    const Proposal p = ranks[r].proposal();
    EXPECT_GE(p.why.peer(), 1);
    EXPECT_TRUE(has(p.why.what(), "rank " + std::to_string(p.why.peer()) + ": ")) << text(p.why);
    EXPECT_TRUE(has(p.why.what(), "mine.codec")) << text(p.why);
    EXPECT_TRUE(has(ranks[r].plan_text(), "topk:ratio=0.1"));
  }
  ASSERT_TRUE(ranks[0].propose(R"({"*": "bf16"})").ok());
  play_until(ranks, round, State::kSwitched);
}

// A session that changed its codec must hold no more memory than a fresh one. Large buffers are whole pages, and
// depending on earlier frees each may hold one page more: eight pages, less than the smallest buffer that both ranks
// could keep (onebit's, 25 KB each).
TEST(SessionPropose, MemoryEqualsThatOfANewSession) {
  constexpr std::size_t kN = 200'000;
  struct Row {
    const char *from, *to;
  };
  for (const Row& row :
       {Row{"fp8", "topk:ratio=0.01"}, {"fp8", "fp32"}, {"fp32", "fp8"}, {"onebit", "bf16"}}) {
    const auto held = [&](const char* first, const char* then) {
      std::vector<Floats> values(2, Floats(kN));
      const std::int64_t before = testing::allocated_bytes();
      Ranks ranks(open_loop(2), with(first));
      const auto round = [&](int k) {
        ranks.each([&](Rank r) {
          Floats& v = values[at(r)];
          for (std::size_t i = 0; i < kN; ++i)
            v[i] = std::sin(static_cast<float>(i) + static_cast<float>(k + r));
          const Tensor t{.key = "w", .data = v.data(), .n = kN};
          const auto ticket = ranks[r].sync({&t, 1});
          ASSERT_TRUE(ticket.ok()) << text(ticket.status());
          ASSERT_TRUE(ranks[r].wait(*ticket).ok());
          ASSERT_TRUE(ranks[r].commit().ok());
        });
      };
      for (int k = 0; k < 3; ++k) round(k);
      if (then != nullptr) {
        EXPECT_TRUE(ranks[0].propose("{\"*\": \"" + std::string(then) + "\"}").ok());
        for (int k = 3; k < 12; ++k) round(k);
        EXPECT_EQ(ranks[1].proposal().state, State::kSwitched);
      }
      return testing::allocated_bytes() - before;
    };
    const std::int64_t fresh = held(row.to, nullptr), switched = held(row.from, row.to);
    EXPECT_LE(switched, fresh + 32'768)
        << row.from << " to " << row.to << ": " << fresh << " in a fresh session";
  }
}

}  // namespace
}  // namespace tithe
