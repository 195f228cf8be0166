// SPDX-License-Identifier: Apache-2.0
// Rounds that run without the program of a late rank. Rank 1 is late until the others have the awaited results, so
// timing decides nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "support/exact.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using harness::same_bits;
using std::chrono::milliseconds;
using testing::Ranks;
using testing::text;
using Floats = std::vector<float>;

constexpr std::size_t kValues = 300;

// Integers, whose sums are exact in any order.
Floats whole_numbers(Rank r, int round) {
  Floats v(kValues);
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>((static_cast<int>(i) * 7 + 3 * r + 5 * round) % 41 - 20);
  return v;
}

Status play(
    Session& session, Floats& values, const std::function<void()>& handed = [] {}) {
  std::vector<Tensor> bucket = {{.key = "w", .data = values.data(), .n = values.size() - 40},
                                {.key = "b", .data = values.data() + values.size() - 40, .n = 40}};
  const Result<Ticket> ticket = session.sync(bucket);
  if (!ticket.ok()) return ticket.status();
  handed();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

Floats unsent(const Session& session) {
  Floats v(kValues);
  EXPECT_TRUE(session.residual("w", std::span(v).first(kValues - 40)).ok());
  EXPECT_TRUE(session.residual("b", std::span(v).last(40)).ok());
  return v;
}

void until(const std::function<bool()>& true_) {
  for (int k = 0; k < 20'000 && !true_(); ++k) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(true_());
}

SessionOptions options_of(const std::string& codec, const std::string& strategy, const char* stragglers) {
  return {.codec = codec, .strategy = strategy, .average = false, .min_values = 0, .stragglers = stragglers};
}

// Rank 0's own share is so large that it never counts as late.
void first_is_patient(Rank r, SessionOptions& mine) {
  const std::size_t share = mine.stragglers.find("0.01");
  if (r == 0 && share != std::string::npos) mine.stragglers.replace(share, 4, "1000");
}

struct Course {
  std::vector<std::vector<Floats>> results{2};  // by rank and round
  std::vector<Floats> unsent{2};
};

// Ten rounds of two ranks. In rounds 4 and 5, rank 1 is late until rank 0 has their results. `plain`: rank 1 hands
// over zeros in time instead, and all three gradients in round 6.
Course course_of(const std::string& codec, const std::string& strategy, bool plain) {
  Course out;
  Ranks ranks(open_loop(2), options_of(codec, strategy, plain ? "off" : "share=0.01,without=2"),
              first_is_patient);
  std::atomic<int> first_has{0}, second_hands{0};
  ranks.each([&](Rank r) {
    auto& mine = out.results[testing::at(r)];
    for (int round = 0; round < 10; ++round) {
      Floats values = whole_numbers(r, round);
      if (r == 1 && plain && (round == 4 || round == 5)) std::ranges::fill(values, 0.0F);
      if (r == 1 && plain && round == 6)
        for (const int late : {4, 5})
          for (std::size_t i = 0; i < kValues; ++i) values[i] += whole_numbers(1, late)[i];
      if (r == 1 && !plain && round == 4) {
        const std::uint64_t waited = ranks[1].stats().wait_ns;
        until([&] { return first_has == 6; });
        until([&] { return ranks[1].stats().rounds_behind == 2; });
        EXPECT_EQ(ranks[1].stats().wait_ns, waited) << "the proxy waits, and not the program";
      }
      if (r == 0 && !plain && round != 4 && round != 5) until([&] { return second_hands > round; });
      const Status s =
          play(ranks[r], values, [&] { second_hands = r == 1 ? round + 1 : second_hands.load(); });
      ASSERT_TRUE(s.ok()) << text(s) << " rank " << r << " round " << round;
      mine.push_back(std::move(values));
      if (r == 0) first_has = round + 1;
    }
    out.unsent[testing::at(r)] = unsent(ranks[r]);
    const SessionStats stats = ranks[r].stats();
    EXPECT_EQ(stats.rounds, 10U);
    EXPECT_EQ(stats.rounds_behind, 0U);
    if (r == 1 && !plain) {
      EXPECT_EQ(stats.rounds_missed, 2U);
    }
  });
  return out;
}

// A proxy's round has the same bits as a round to which the rank contributes zeros. The late gradient is then part of
// the residual.
TEST(Session, proxied) {
  for (const char* strategy : {"gather", "server", "ring"})
    for (const char* codec : {"fp32", "topk:ratio=0.1", "bf16"}) {
      const Course late = course_of(codec, strategy, false);
      ASSERT_EQ(late.results[1].size(), 10U);
      for (std::size_t k = 0; k < 10; ++k)
        EXPECT_TRUE(same_bits(late.results[0][k], late.results[1][k])) << codec << k;
      if (std::string_view(codec) == "bf16") continue;  // its sums are rounded in another order
      const Course plain = course_of(codec, strategy, true);
      for (std::size_t k = 0; k < 7; ++k)
        EXPECT_TRUE(same_bits(late.results[0][k], plain.results[0][k])) << codec << " by " << strategy << k;
      for (const std::size_t r : {0, 1})
        EXPECT_TRUE(same_bits(late.unsent[r], plain.unsent[r])) << codec << r;
    }
}

// At most one rank is missing, and at most for `without` rounds in a row: then all ranks are waited for.
TEST(StragglerProxy, bounded_by_ranks_and_without) {
  Ranks ranks(open_loop(3), options_of("topk:ratio=0.1", "gather", "share=0.01,without=1"), first_is_patient);
  ranks.each([&](Rank r) {
    for (int round = 0; round < 3; ++round) {
      Floats values = whole_numbers(r, round);
      ASSERT_TRUE(play(ranks[r], values).ok());
    }
  });
  const auto missed = [&](Rank r) { return ranks[r].stats().rounds_missed; };
  const std::uint64_t first = missed(1), second = missed(2);  // a busy machine may cause missed rounds
  std::atomic<int> done{0};
  std::vector<Floats> seen(3);
  ranks.each([&](Rank r) {
    if (r > 0) until([&] { return done >= r; });
    Floats values = whole_numbers(r, 3);
    const Status s = play(ranks[r], values, [&] {
      if (r > 0) return;
      std::this_thread::sleep_for(milliseconds(60));
      EXPECT_TRUE(missed(1) == first && missed(2) == second) << "two of three are late, so no proxy may run";
      done = 1;  // lets rank 1 continue
    });
    EXPECT_TRUE(s.ok()) << text(s);
    seen[testing::at(r)] = values;
    if (r == 0) done = 2;
  });
  EXPECT_EQ(missed(2), second + 1);
  EXPECT_TRUE(same_bits(seen[0], seen[1]) && same_bits(seen[0], seen[2]));
  std::atomic<bool> incoming{false};
  ranks.each([&](Rank r) {  // without=1: the second round in a row waits
    if (r == 2) until([&] { return incoming.load(); });
    for (int round = 4; round < 6; ++round) {
      Floats values = whole_numbers(r, round);
      const Status s = play(ranks[r], values, [&] {
        if (r > 0 || round < 5) return;
        std::this_thread::sleep_for(milliseconds(60));
        EXPECT_LE(ranks[2].stats().rounds_behind, 1U) << "a second missed round in a row";
        incoming = true;
      });
      EXPECT_TRUE(s.ok()) << text(s);
    }
  });
}

// Saved states of all ranks are of one round: no proxy runs around every level-th round, and a rank with stored
// results has no state.
TEST(StragglerProxy, level_and_whole_states_are_of_one_round) {
  Ranks ranks(open_loop(2), options_of("topk:ratio=0.1", "server", "share=0.01,without=4,level=6"),
              first_is_patient);
  std::atomic<int> first_has{0};
  std::vector<std::vector<std::uint8_t>> states(2);
  ranks.each([&](Rank r) {
    for (int round = 0; round < 8; ++round) {
      if (r == 1 && round == 2) {  // 2, 3 and 4 run without it; 5 and 6 wait
        until([&] { return first_has == 5 && ranks[1].stats().rounds_behind == 3; });
        for (const Status& s :
             {ranks[1].state().status(), ranks[1].common_state().status(), ranks[1].evaluated(1.0),
              ranks[1].reform(std::move(open_loop(1)[0]), {"1"}, 1)})
          EXPECT_TRUE(s.code() == Code::kInvalid && testing::has(s.what(), "3 rounds continued without"))
              << text(s);
      }
      Floats values = whole_numbers(r, round);
      ASSERT_TRUE(play(ranks[r], values).ok()) << round;
      if (r == 0) first_has = round + 1;
      if (round == 5) {
        std::this_thread::sleep_for(milliseconds(r == 1 ? 60 : 0));  // no proxy may run meanwhile
        const auto state = ranks[r].state();
        ASSERT_TRUE(state.ok()) << text(state.status());
        states[testing::at(r)] = *state;
      }
    }
  });
  Ranks again(open_loop(2), options_of("topk:ratio=0.1", "server", "share=0.01,without=4,level=6"));
  again.each([&](Rank r) {
    const Status s = again[r].restore(states[testing::at(r)]);
    EXPECT_TRUE(s.ok()) << text(s);
    Floats values = whole_numbers(r, 6);
    EXPECT_TRUE(play(again[r], values).ok());
  });
}

// All ranks drop a round that is not finite, including the late rank. A late gradient that is not finite is dropped
// with a message.
TEST(StragglerProxy, non_finite_late_gradients_are_dropped) {
  Ranks ranks(open_loop(2), options_of("topk:ratio=0.1", "gather", "share=0.01,without=2"), first_is_patient);
  std::atomic<int> first_has{0};
  std::vector<Floats> last(2);
  ranks.each([&](Rank r) {
    for (int round = 0; round < 5; ++round) {
      if (r == 1 && round == 2) until([&] { return first_has == 4; });
      Floats values = whole_numbers(r, round);
      if (r == 0 && round == 2) values[7] = std::numeric_limits<float>::infinity();
      if (r == 1 && round == 3) values[7] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_TRUE(play(ranks[r], values).ok());
      EXPECT_EQ(ranks[r].last_round_dropped(), round == 2) << "rank " << r << " round " << round;
      EXPECT_EQ(std::isnan(values[0]), round == 2);
      if (r == 0) first_has = round + 1;
      last[testing::at(r)] = values;
    }
  });
  EXPECT_TRUE(same_bits(last[0], last[1]));
  const std::vector<std::string> lines = ranks[1].messages();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(testing::has(lines[0], "round 3 continued without rank 1") && testing::has(lines[0], "'w'"))
      << lines[0];
  EXPECT_GT(ranks[1].stats().values_dropped, 0U);
}

// If another rank leaves, a rank that is behind still gets the stored results, and then the error that names the
// rank.
TEST(StragglerProxy, stored_results_are_delivered_after_a_failure) {
  Ranks ranks(open_loop(2), options_of("topk:ratio=0.1", "gather", "share=0.01,without=2"), first_is_patient);
  std::vector<std::vector<Floats>> seen(2);
  std::atomic<bool> gone{false};
  ranks.each([&](Rank r) {
    for (int round = 0; round < (r == 0 ? 4 : 5); ++round) {
      if (r == 1 && round == 2) until([&] { return gone.load(); });
      Floats values = whole_numbers(r, round);
      const Status s = play(ranks[r], values);
      if (round < 4) {
        ASSERT_TRUE(s.ok()) << text(s);
        seen[testing::at(r)].push_back(values);
      } else {
        EXPECT_EQ(s.code(), Code::kPeerLost) << text(s);
        EXPECT_EQ(s.peer(), 0);
        EXPECT_TRUE(ranks[1].state().ok());
      }
    }
    if (r > 0) return;
    ranks.close(0);
    gone = true;
  });
  for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(same_bits(seen[0][k], seen[1][k])) << k;
}

// Refused: another bucket than in the proxy's round, fewer buckets, and options that require a rank's own gradient.
TEST(StragglerProxy, differing_buckets_and_unsupported_options_are_refused) {
  Ranks ranks(open_loop(2), options_of("topk:ratio=0.1", "gather", "share=0.01,without=2"), first_is_patient);
  std::atomic<int> first_has{0};
  ranks.each([&](Rank r) {
    for (int round = 0; round < 4; ++round) {
      if (r == 1 && round == 2) {
        until([&] { return first_has == 4; });
        Floats other(11);
        const Tensor t{.key = "w", .data = other.data(), .n = other.size()};
        const Status s = ranks[1].sync({&t, 1}).status();
        EXPECT_TRUE(s.code() == Code::kInvalid && testing::has(s.what(), "continued without this rank"))
            << text(s);
      }
      Floats values = whole_numbers(r, round);
      ASSERT_TRUE(play(ranks[r], values).ok());
      if (r == 0) first_has = round + 1;
    }
  });
  const char* wanted = "without=2";
  const auto refused = [&](SessionOptions o, const char* what) {
    o.stragglers = wanted;
    const Status s = Session::open(std::move(open_loop(1)[0]), o).status();
    EXPECT_TRUE(!s.ok() && testing::has(s.what(), what) && testing::has(s.what(), "stragglers"))
        << text(s) << " and not " << what;
  };
  refused({.lanes = 0}, "lanes");
  refused({.undo = true}, "undo");
  refused({.codec = "auto"}, "auto");
  refused({.codec = "topk", .schedule = "warmup:100"}, "schedule");
  refused({.codec = "dgc:feedback=momentum"}, "momentum");
  refused({.codec = "topk:clip=1"}, "clip");
  refused({.codec = "fp8:feedback=none"}, "feedback=none");
  refused({.codec = "sign_majority"}, "vote");
  refused({.codec = "topk", .choices = R"({"*": "dgc:feedback=momentum"})"}, "momentum");
  wanted = "without=0";
  refused({}, "without=4");
}

}  // namespace
}  // namespace tithe
