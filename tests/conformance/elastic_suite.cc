// SPDX-License-Identifier: Apache-2.0
// States that continue in a world of other ranks.
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
using testing::key_of;
using testing::Ranks;
using testing::residuals;
using testing::synchronise;
using testing::text;
using testing::Values;
using State = std::vector<std::uint8_t>;

constexpr std::size_t kSizes[] = {1, 33, 257, 4097};

SessionOptions with(const Spec& spec, std::string_view strategy = "auto") {
  return {.strategy = std::string(strategy),
          .lanes = 0,
          .average = false,
          .min_values = 0,
          .part_values = 3000,
          .seed = 7,
          .spec = spec};
}

Values rounds(Session& session, Rank rank, int from, int to, Data data = Data::kDyadic) {
  Values v;
  for (int round = from; round < to; ++round) {
    v = gradients(kSizes, data, rank, round);
    const Status s = synchronise(session, kSizes, v);
    EXPECT_TRUE(s.ok()) << text(s);
  }
  return v;
}

std::vector<State> states(Ranks& ranks) {
  std::vector<State> all(static_cast<std::size_t>(ranks.world()));
  ranks.each([&](Rank r) { all[at(r)] = *ranks[r].state(); });
  return all;
}

std::vector<ByteView> views(const std::vector<State>& states, std::initializer_list<int> which) {
  std::vector<ByteView> out;
  for (const int r : which) out.emplace_back(states[static_cast<std::size_t>(r)]);
  return out;
}
std::vector<ByteView> views(const std::vector<State>& states) { return {states.begin(), states.end()}; }

// By tensor and value, over all ranks.
std::vector<std::vector<double>> sums(Ranks& ranks) {
  std::vector<std::vector<double>> out;
  for (const std::size_t n : kSizes) out.emplace_back(n);
  for (Rank r = 0; r < ranks.world(); ++r) {
    const Values mine = residuals(ranks[r], kSizes);
    for (std::size_t k = 0; k < mine.size(); ++k)
      for (std::size_t i = 0; i < mine[k].size(); ++i) out[k][i] += double{mine[k][i]};
  }
  return out;
}

double sum_of(const Values& v) {
  double sum = 0;
  for (const std::vector<float>& t : v)
    for (const float x : t) sum += double{x};
  return sum;
}

// Every codec with every strategy that supports it: the new world's residuals sum to those of the old world, and the
// next rounds are correct.
class Elastic : public ::testing::TestWithParam<int> {};

TEST_P(Elastic, EightRanksContinueInAnotherWorldWithAnExactLedger) {
  for (const testing::LawCase& law : testing::law_cases())
    for (const Strategy* strategy : all_strategies()) {
      SessionOptions o = with(law.spec, strategy->name);
      if (strategy->between != nullptr) o.hosts = "4x2";
      SCOPED_TRACE(law.label + " by " + std::string(strategy->name));
      Ranks before(open_loop(8), o);
      if (!before.open_status(0).ok()) continue;  // the codec and the strategy have no common law
      before.each([&](Rank r) { rounds(before[r], r, 0, 2); });
      const std::vector<State> saved = states(before);
      const auto unsent = sums(before);

      if (strategy->between != nullptr) o.hosts = GetParam() == 1 ? "1x1" : GetParam() == 6 ? "2+1+3" : "4x3";
      Ranks after(open_loop(GetParam()), o);
      after.each([&](Rank r) {
        const Status s = after[r].restore(views(saved));
        ASSERT_TRUE(s.ok()) << text(s);
      });
      const bool exact = law.traits().exact_ledger;
      const auto now = sums(after);
      for (std::size_t k = 0; k < unsent.size(); ++k)
        for (std::size_t i = 0; i < unsent[k].size(); ++i)
          ASSERT_NEAR(now[k][i], unsent[k][i], exact ? 0 : 1e-5 * (1 + std::fabs(unsent[k][i])))
              << k << ' ' << i;

      const auto world = static_cast<std::size_t>(GetParam());
      std::vector<Values> left(world), grads(world), result(world), kept(world);
      for (int round = 2; round < 4; ++round) {
        after.each([&](Rank r) {
          left[at(r)] = residuals(after[r], kSizes);
          result[at(r)] = grads[at(r)] = gradients(kSizes, Data::kDyadic, r, round);
          const Status s = synchronise(after[r], kSizes, result[at(r)]);
          ASSERT_TRUE(s.ok()) << text(s);
          kept[at(r)] = residuals(after[r], kSizes);
        });
        for (std::size_t r = 1; r < world; ++r) ASSERT_EQ(first_difference(result[r], result[0]), "") << r;
        const testing::Imbalance off = imbalance(grads, left, result[0], kept, law.traits(), exact);
        ASSERT_LE(off.times, exact ? 0 : 1) << off << ", round " << round;
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Worlds, Elastic, ::testing::Values(1, 6, 12));

SessionOptions named(std::vector<std::string> names, const char* codec = "topk:ratio=0.05") {
  SessionOptions o = with(*parse_spec(codec));
  o.members = std::move(names);
  return o;
}

TEST(SessionElastic, SurvivorKeepsItsResidualUnderANewRank) {
  Ranks before(open_loop(3), named({"ann", "bob", "cay"}));
  before.each([&](Rank r) { rounds(before[r], r, 0, 2); });
  const std::vector<State> saved = states(before);
  Ranks after(open_loop(4), named({"new", "cay", "bob", "ann"}));
  after.each([&](Rank r) { ASSERT_TRUE(after[r].restore(views(saved)).ok()); });
  for (Rank r = 0; r < 3; ++r)
    EXPECT_EQ(first_difference(residuals(after[3 - r], kSizes), residuals(before[r], kSizes)), "") << r;
  EXPECT_EQ(sum_of(residuals(after[0], kSizes)), 0) << "a new rank has no residual";
  after.each([&](Rank r) { rounds(after[r], r, 2, 3); });
  EXPECT_EQ(after[2].stats().ranks_lost, 0U);
}

// A survivor restores its own state, a new rank any state; the residuals of lost ranks are booked.
TEST(SessionElastic, UnknownResidualsAreBooked) {
  Ranks before(open_loop(4), named({"a", "b", "c", "d"}));
  before.each([&](Rank r) { rounds(before[r], r, 0, 2); });
  const std::vector<State> saved = states(before);
  Ranks after(open_loop(3), named({"a", "d", "e"}));
  after.each([&](Rank r) {
    const Status s = after[r].restore(r == 0 ? views(saved, {0}) : views(saved, {3}));
    ASSERT_TRUE(s.ok()) << text(s);
  });
  after.each([&](Rank r) { rounds(after[r], r, 2, 4); });
  for (Rank r = 0; r < 3; ++r) EXPECT_EQ(after[r].stats().ranks_lost, 2U);
  const auto messages = after[0].messages();
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_TRUE(has(messages[0], "which are unknown: 'b', 'c'")) << messages[0];
}

TEST(SessionElastic, DroppedResidualsAreBookedByTensor) {
  Ranks before(open_loop(4), named({"a", "b", "c", "d"}));
  before.each([&](Rank r) { rounds(before[r], r, 0, 2); });
  const std::vector<State> saved = states(before);
  Ranks after(open_loop(3), named({"a", "b", "d"}));
  after.each([&](Rank r) { ASSERT_TRUE(after[r].restore(views(saved), Lost::kBook).ok()); });
  const Values gone = residuals(before[2], kSizes);
  for (Rank r = 0; r < 3; ++r) {
    EXPECT_EQ(first_difference(residuals(after[r], kSizes), residuals(before[r == 2 ? 3 : r], kSizes)), "");
    EXPECT_EQ(after[r].stats().sum_lost, r == 0 ? sum_of(gone) : 0) << r;
  }
  EXPECT_GT(after[0].stats().values_lost, 0U);
  after.each([&](Rank r) { rounds(after[r], r, 2, 3); });
  double sum = 0;
  for (const TensorStats& t : after[0].tensor_stats()) {
    sum += t.sum_lost;
    for (std::size_t k = 0; k < std::size(kSizes); ++k)
      if (t.key == key_of(kSizes[k])) {
        EXPECT_EQ(t.sum_lost, sum_of({gone[k]})) << t.key;
      }
  }
  EXPECT_EQ(sum, sum_of(gone));
  EXPECT_TRUE(has(after[0].messages().front(), "discarded: 'c'"));
}

TEST(SessionElastic, RefusesMismatchedStates) {
  Ranks before(open_loop(3), named({"a", "b", "c"}));
  before.each([&](Rank r) { rounds(before[r], r, 0, 2); });
  const std::vector<State> saved = states(before);
  before.each([&](Rank r) { rounds(before[r], r, 2, 3); });
  const std::vector<State> later = states(before);
  const auto refused = [&](const SessionOptions& o, std::vector<ByteView> given) {
    auto alone = Session::open(std::move(open_loop(2)[0]), o);
    return (*alone)->restore(given);
  };
  const SessionOptions two = named({"a", "b"});
  EXPECT_TRUE(has(refused(two, {}).what(), "no state was passed"));
  EXPECT_TRUE(has(refused(two, views(saved, {1, 2})).what(), "its state was not passed"));
  EXPECT_TRUE(has(refused(two, views(saved, {0, 1, 0})).what(), "two states are of rank 'a'"));
  const Status mixed = refused(two, {saved[0], later[1]});
  EXPECT_EQ(mixed.code(), Code::kMismatch);
  EXPECT_TRUE(has(mixed.what(),
                  "'b' and 'a' are not from the same round of the same job: they differ in rounds 3 and 2"))
      << text(mixed);
  EXPECT_TRUE(has(refused(named({"a", "b"}, "fp8"), views(saved)).what(), "open it with codec 'topk"));
  SessionOptions serving = two;
  serving.servers = 1;
  EXPECT_EQ(refused(serving, views(saved)).code(), Code::kUnsupported);
  EXPECT_EQ(refused(two, {ByteView(saved[0]).first(100)}).code(), Code::kCorrupt);

  Ranks model(open_loop(3), named({"a", "b", "c"}));
  model.each([&](Rank r) {
    std::vector<float> v(20);
    const Tensor t{.key = "values33", .data = v.data(), .n = v.size()};
    ASSERT_TRUE(model[r].wait(*model[r].sync({&t, 1})).ok());
    ASSERT_TRUE(model[r].commit().ok());
  });
  const std::vector<State> other = states(model);
  const Status models = refused(two, {saved[0], other[1]});
  EXPECT_EQ(models.code(), Code::kMismatch) << text(models);
  const Status sizes = model[0].restore(views(saved));
  EXPECT_TRUE(has(sizes.what(), "'values33' has 33 values in the state, but 20")) << text(sizes);

  const auto open = [](std::vector<std::string> names) {
    return Session::open(std::move(open_loop(2)[0]), named(std::move(names))).status();
  };
  EXPECT_TRUE(has(open({"a"}).what(), "has 1 names for 2 ranks"));
  EXPECT_TRUE(has(open({"a", "a"}).what(), "'a' occurs twice"));
  EXPECT_TRUE(has(open({"a", ""}).what(), "a name has 0 bytes"));
}

// A rank that continues from other states than its peers is named before any payload is sent.
TEST(SessionElastic, RanksWithDifferingStatesAreNamed) {
  Ranks before(open_loop(4), named({"a", "b", "c", "d"}));
  before.each([&](Rank r) { rounds(before[r], r, 0, 2); });
  const std::vector<State> saved = states(before);
  Ranks after(open_loop(3), named({"a", "b", "c"}));
  after.each([&](Rank r) {
    ASSERT_TRUE(after[r].restore(r == 1 ? views(saved, {1}) : views(saved)).ok());
    Values v = gradients(kSizes, Data::kDyadic, r, 2);
    const Status s = synchronise(after[r], kSizes, v);
    EXPECT_EQ(s.code(), Code::kMismatch);
    EXPECT_EQ(s.peer(), 1);
    EXPECT_TRUE(has(s.what(), "rank 1 differs: it resumes from 4 ranks")) << text(s);
  });
  Ranks mixed(open_loop(3), named({"a", "b", "c"}), [](Rank r, SessionOptions& o) {
    o.members = {"a", "b", r == 2 ? "e" : "c"};
  });
  mixed.each([&](Rank r) {
    Values v = gradients(kSizes, Data::kDyadic, r, 2);
    const Status s = synchronise(mixed[r], kSizes, v);
    EXPECT_EQ(s.peer(), 2);
    EXPECT_TRUE(has(s.what(), "members: the names of ranks")) << text(s);
  });
}

}  // namespace
}  // namespace tithe
