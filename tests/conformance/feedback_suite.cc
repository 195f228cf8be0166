// SPDX-License-Identifier: Apache-2.0
// Residuals are kept across failures, NaN in another bucket, changes of the plan, and saved states.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "engine/program/unit.h"
#include "engine/session/saved_state.h"
#include "support/delayed_transport.h"
#include "support/phase_codecs.h"
#include "support/ranks.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::DelayedTransport;
using testing::Ranks;
using testing::text;

using Floats = std::vector<float>;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Floats wave(std::size_t n, Rank r, int round) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = std::sin(static_cast<float>(3 * i) + static_cast<float>(r) + 10.0F * static_cast<float>(round));
  return v;
}

struct Named {
  std::string key;
  Floats values;
};

// One round, a bucket per list; without the commit.
Status buckets_of(Session& session, std::vector<std::vector<Named>>& buckets) {
  std::vector<Ticket> tickets;
  for (std::vector<Named>& bucket : buckets) {
    std::vector<Tensor> tensors;
    for (Named& t : bucket) tensors.push_back({.key = t.key, .data = t.values.data(), .n = t.values.size()});
    const Result<Ticket> ticket = session.sync(tensors);
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(*ticket);
  }
  for (const Ticket t : tickets) TITHE_TRY(session.wait(t));
  return {};
}

Status round_of(Session& session, std::vector<Named> bucket) {
  std::vector<std::vector<Named>> buckets = {std::move(bucket)};
  TITHE_TRY(buckets_of(session, buckets));
  return session.commit();
}

Floats residual_of(const Session& session, std::string_view key, std::size_t n) {
  Floats v(n, kNaN);
  EXPECT_TRUE(session.residual(key, v).ok());
  return v;
}

bool all_nan(const Floats& v) {
  return std::all_of(v.begin(), v.end(), [](float x) { return std::isnan(x); });
}

// session.h, "together": a dropped round keeps the residuals of all its buckets. An optimizer that applied the
// round's finite buckets would count their residuals twice.
TEST(SessionFeedback, ANaNInOneBucketDropsAllBucketsOfTheRound) {
  for (const char* codec : {"topk:ratio=0.1", "bf16", "fp32"}) {
    Ranks ranks(open_loop(3), {.codec = codec, .min_values = 100});
    ranks.each([&](Rank r) {
      ASSERT_TRUE(
          round_of(ranks[r], {{"a", wave(500, r, 0)}, {"b", wave(40, r, 1)}, {"c", wave(300, r, 2)}}).ok());
      const Floats before = residual_of(ranks[r], "a", 500);
      std::vector<std::vector<Named>> buckets = {
          {{"a", wave(500, r, 3)}}, {{"b", wave(40, r, 4)}}, {{"c", wave(300, r, 5)}}};
      if (r == 1) buckets[2][0].values[7] = kNaN;
      const Status status = buckets_of(ranks[r], buckets);
      ASSERT_TRUE(status.ok()) << text(status);
      EXPECT_TRUE(all_nan(buckets[2][0].values));
      ASSERT_TRUE(ranks[r].commit().ok());
      for (const auto& bucket : buckets)
        EXPECT_TRUE(all_nan(bucket[0].values)) << codec << ' ' << bucket[0].key;
      EXPECT_TRUE(ranks[r].last_round_dropped());
      EXPECT_EQ(residual_of(ranks[r], "a", 500), before);
      ASSERT_TRUE(round_of(ranks[r], {{"a", wave(500, r, 6)}}).ok());
      EXPECT_FALSE(ranks[r].last_round_dropped());
    });
  }
}

// A tensor's residual is sent even if its new bucket is sent uncompressed and has no residual array.
TEST(SessionFeedback, ResidualMovesIntoAUnitWithoutResiduals) {
  constexpr std::size_t kN = 200;
  const SessionOptions compressed{.codec = "topk:ratio=0.05", .min_values = 0};
  SessionOptions raw = compressed;
  raw.min_values = 4096;
  Ranks ranks(open_loop(2), compressed), again(open_loop(2), raw);
  std::vector<Floats> unsent(2), result(2);
  ranks.each([&](Rank r) {
    ASSERT_TRUE(round_of(ranks[r], {{"w", wave(kN, r, 0)}}).ok());
    unsent[static_cast<std::size_t>(r)] = residual_of(ranks[r], "w", kN);
    const auto state = ranks[r].state();
    ASSERT_TRUE(state.ok());
    ASSERT_TRUE(again[r].restore(*state).ok());
    EXPECT_EQ(residual_of(again[r], "w", kN), unsent[static_cast<std::size_t>(r)]);
  });
  EXPECT_NE(unsent[0], Floats(kN));
  again.each([&](Rank r) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<Named>> buckets = {{{"w", Floats(kN)}}};
      ASSERT_TRUE(buckets_of(again[r], buckets).ok());
      ASSERT_TRUE(again[r].commit().ok());
      if (round == 0) result[static_cast<std::size_t>(r)] = buckets[0][0].values;
      if (round > 0) {
        EXPECT_EQ(buckets[0][0].values, Floats(kN)) << "sent once only, round " << round;
      }
      EXPECT_EQ(residual_of(again[r], "w", kN), Floats(kN)) << "round " << round;
    }
  });
  for (std::size_t i = 0; i < kN; ++i) EXPECT_EQ(result[0][i], (unsent[0][i] + unsent[1][i]) / 2) << i;
  EXPECT_EQ(result[0], result[1]);
}

// A round that is dropped, or fails, sends nothing of the adopted residuals.
TEST(SessionFeedback, AdoptedResidualStaysUntilACommit) {
  constexpr std::size_t kN = 64;
  Ranks ranks(open_loop(2), {.codec = "topk:ratio=0.05", .min_values = 0});
  Ranks again(open_loop(2), {.codec = "topk:ratio=0.05"});
  ranks.each([&](Rank r) {
    ASSERT_TRUE(round_of(ranks[r], {{"w", wave(kN, r, 0)}}).ok());
    const Floats unsent = residual_of(ranks[r], "w", kN);
    ASSERT_TRUE(again[r].restore(*ranks[r].state()).ok());
    Floats bad(kN);
    if (r == 0) bad[3] = kNaN;
    ASSERT_TRUE(round_of(again[r], {{"w", bad}}).ok());
    EXPECT_TRUE(again[r].last_round_dropped());
    EXPECT_EQ(residual_of(again[r], "w", kN), unsent);
    ASSERT_TRUE(round_of(again[r], {{"w", Floats(kN)}}).ok());
    EXPECT_EQ(residual_of(again[r], "w", kN), Floats(kN));
  });
}

// A memory of equal size but another cut is not adopted.
TEST(SessionFeedback, StateOfAnotherKindIsNotAdopted) {
  const auto unit = [](std::size_t cut) {
    Plan plan;
    for (const auto& [first, n] : {std::pair{std::size_t{0}, cut}, std::pair{cut, 30 - cut}})
      plan.parts.push_back({.first = first,
                            .n = n,
                            .spec = {&testing::kept_step_codec, {}, {.kind = Feedback::kResidual}},
                            .strategy = find_strategy("gather"),
                            .why = {}});
    std::vector<engine::TensorLayout> tensors = {{.key = "w", .n = 30}};
    return std::make_unique<engine::Unit>(engine::Member{}, std::move(tensors), std::move(plan),
                                          std::span<const double>{});
  };
  const auto at_10 = unit(10), at_10_too = unit(10), at_15 = unit(15);
  const feedback::ValueRange w = at_10->tensors()[0].slice();
  const auto had = at_10->feedback().memory(w);
  ASSERT_EQ(had.size(), 8U);
  ASSERT_EQ(at_15->feedback().memory(w).size(), had.size());
  std::fill(had.begin(), had.end(), std::uint8_t{7});
  const std::vector<std::uint8_t> before(had.begin(), had.end());

  feedback::TensorState kept{.n = 30, .owner = &at_10->feedback(), .slice = w};
  kept.move_to(at_10_too->feedback(), w);
  EXPECT_TRUE(std::ranges::equal(at_10_too->feedback().memory(w), before));
  kept.move_to(at_15->feedback(), w);
  EXPECT_TRUE(std::ranges::equal(at_15->feedback().memory(w), std::vector<std::uint8_t>(8)));
}

// A part has its own ratio unless it follows the schedule.
TEST(SessionFeedback, ScheduleAffectsOnlyItsParts) {
  Plan plan;
  for (const bool scheduled : {true, false})
    plan.parts.push_back({.first = scheduled ? 0U : 100U,
                          .n = 100,
                          .spec = *parse_spec("topk:ratio=0.1,feedback=none"),
                          .strategy = find_strategy("gather"),
                          .why = {},
                          .scheduled = scheduled});
  std::vector<engine::TensorLayout> tensors = {{.key = "w", .n = 200}};
  const double ratios[] = {0.1, 0.5};
  engine::Unit unit(engine::Member{}, std::move(tensors), std::move(plan), ratios);
  unit.use_ratio(0.5);
  Floats v = wave(200, 0, 0);
  const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
  unit.begin({&t, 1}, 0);
  // On one rank, the steps are listed in an order in which they can run.
  for (std::size_t step = 0; step < unit.program().steps.size(); ++step)
    ASSERT_TRUE(unit.run(static_cast<int>(step), 0).ok());
  unit.end();
  EXPECT_EQ(std::count(v.begin(), v.begin() + 100, 0.0F), 50);
  EXPECT_EQ(std::count(v.begin() + 100, v.end(), 0.0F), 90);
}

// docs/reference/errors.md: a state that is saved after a failure continues from the last commit.
TEST(SessionFeedback, StateIsSavedAfterAFailure) {
  auto transports = open_loop(3);
  transports[2] = std::make_unique<DelayedTransport>(std::move(transports[2]), 1, false, nullptr, 30);
  const SessionOptions options{.codec = "topk:ratio=0.1", .min_values = 0};
  Ranks ranks(std::move(transports), options);
  std::vector<std::vector<std::uint8_t>> kept(3);
  ranks.each([&](Rank r) {
    Status status;
    std::vector<std::uint8_t> last = *ranks[r].state();
    for (int round = 0; round < 100 && status.ok(); ++round) {
      status = round_of(ranks[r], {{"w", wave(300, r, round)}});
      if (!status.ok()) break;
      last = *ranks[r].state();
    }
    ASSERT_FALSE(status.ok());
    if (r == 2) return;
    const auto state = ranks[r].state();
    ASSERT_TRUE(state.ok()) << text(state.status());
    EXPECT_EQ(*state, last);
    EXPECT_FALSE(ranks[r].commit().ok()) << "the session stays failed";
  });
}

TEST(SessionFeedback, StateIsSavedAfterCancel) {
  Ranks ranks(open_loop(2), {.codec = "topk:ratio=0.1", .min_values = 0});
  ranks.each([&](Rank r) {
    ASSERT_TRUE(round_of(ranks[r], {{"w", wave(300, r, 0)}}).ok());
    const auto before = ranks[r].state();
    ranks[r].cancel();
    const auto after = ranks[r].state();
    ASSERT_TRUE(after.ok()) << text(after.status());
    EXPECT_EQ(*before, *after);
  });
}

TEST(SessionFeedback, StateWithNanIsRefused) {
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity()})
    for (const bool velocity : {false, true}) {
      feedback::ResidualStore store;
      feedback::TensorState& kept = store.of("layer.weight");
      kept.n = 4;
      (velocity ? kept.loose_velocity : kept.loose_residual) = {1, 2, bad, 4};
      const auto bytes = engine::save({.codec = "topk"}, store);
      engine::SavedHead head;
      feedback::ResidualStore::Map saved;
      const Status status = engine::load(bytes, head, saved);
      EXPECT_EQ(status.code(), Code::kCorrupt);
      EXPECT_NE(status.what().find("layer.weight"), std::string::npos) << text(status);
    }
}

}  // namespace
}  // namespace tithe
