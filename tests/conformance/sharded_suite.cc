// SPDX-License-Identifier: Apache-2.0
// The four laws of reduce-scatters and all-gathers in whole sessions: every pair of single-phase codec, strategy,
// kind, world and shape of ranges; and the contracts of the strategies.
#include "support/delayed_transport.h"
#include "support/ledger.h"
#include "support/sharded_rounds.h"

namespace tithe {
namespace {

using testing::at;
using testing::Data;
using testing::DelayedTransport;
using testing::first_difference;
using testing::gradients;
using testing::Ranks;
using testing::residuals;
using testing::same_bits;
using testing::SentDigest;
using testing::synchronise_as;
using testing::text;
using testing::Values;

// Fewer values than ranks, none at all, and several blocks of every codec.
constexpr std::size_t kSizes[] = {0, 1, 3, 7, 9, 32, 33, 255, 257, 1000, 4097, 9'001};

class ShardedSuite : public ::testing::TestWithParam<testing::ShardedCombination> {
 protected:
  int world() const { return GetParam().world; }
  RoundKind kind() const { return GetParam().kind; }
  bool gathers() const { return kind() == RoundKind::kAllGather; }
  SessionOptions options() const {
    return {.strategy = GetParam().strategy,
            .hosts = testing::hosts_of(world()),
            .lanes = 0,
            .average = false,
            .min_values = 0,
            .seed = 7,
            .spec = GetParam().law.spec};
  }
  template <typename T>
  std::vector<T> by_rank() const {
    return std::vector<T>(static_cast<std::size_t>(world()));
  }
};

TEST_P(ShardedSuite, LedgerAndIdentity) {
  const Traits traits = GetParam().law.traits();
  for (const Data data : {Data::kDyadic, Data::kGaussian}) {
    Ranks all(open_loop(world()), options());
    auto before = by_rank<Values>();
    for (Rank r = 0; r < world(); ++r) before[at(r)] = residuals(all[r], kSizes);
    for (int round = 0; round < 3; ++round) {
      auto grads = by_rank<Values>();
      auto result = by_rank<Values>();
      auto after = by_rank<Values>();
      all.each([&](Rank r) {
        grads[at(r)] = gradients(kSizes, data, r, round);
        result[at(r)] = grads[at(r)];
        const Status s = synchronise_as(kind(), all[r], kSizes, result[at(r)]);
        EXPECT_TRUE(s.ok()) << text(s);
        after[at(r)] = residuals(all[r], kSizes);
      });
      const Values whole = testing::owned(result, kSizes);
      if (gathers()) {
        for (Rank r = 0; r < world(); ++r)
          ASSERT_EQ(first_difference(result[at(r)], whole), "") << "rank " << r << ", round " << round;
        testing::clear_others(grads, kSizes);
      } else {  // the ranges of other ranks are unchanged
        std::vector<Values> left = result, given = grads;
        testing::each_range(kSizes, world(),
                            [&](std::size_t k, std::size_t from, std::size_t to, std::size_t owner) {
                              for (std::size_t i = from; i < to; ++i) left[owner][k][i] = given[owner][k][i];
                            });
        for (Rank r = 0; r < world(); ++r)
          ASSERT_EQ(first_difference(left[at(r)], given[at(r)]), "") << "rank " << r << ", round " << round;
      }
      const bool exact = traits.exact_ledger && data == Data::kDyadic;
      const testing::Imbalance off = testing::imbalance(grads, before, whole, after, traits, exact);
      ASSERT_LE(off.times, exact ? 0 : 1) << off << ", round " << round;
      before = std::move(after);
    }
  }
}

// Same inputs give the same bytes, for any number of lanes, order of arrival and instruction set.
TEST_P(ShardedSuite, Repeatability) {
  struct Run {
    std::vector<Values> result, left;
    std::vector<SentDigest> sent;
  };
  const auto run = [&](int lanes, bool late, bool reference, unsigned seed) {
    Run out{by_rank<Values>(), by_rank<Values>(), by_rank<SentDigest>()};
    auto transports = open_loop(world());
    for (Rank r = 0; r < world(); ++r)
      transports[at(r)] = std::make_unique<DelayedTransport>(
          std::move(transports[at(r)]), seed + static_cast<unsigned>(r), late, &out.sent[at(r)]);
    SessionOptions o = options();
    o.lanes = lanes;
    o.force_reference = reference;
    Ranks all(std::move(transports), o);
    all.each([&](Rank r) {
      for (int round = 0; round < 2; ++round) {
        out.result[at(r)] = gradients(kSizes, Data::kGaussian, r, round);
        const Status s = synchronise_as(kind(), all[r], kSizes, out.result[at(r)]);
        EXPECT_TRUE(s.ok()) << text(s);
      }
      out.left[at(r)] = residuals(all[r], kSizes);
    });
    return out;
  };
  const Run first = run(0, false, false, 1);
  for (const int lanes : {1, 3}) {
    const Run again = run(lanes, true, lanes == 1, 10U * static_cast<unsigned>(lanes));
    for (Rank r = 0; r < world(); ++r) {
      EXPECT_EQ(first_difference(again.result[at(r)], first.result[at(r)]), "")
          << lanes << " lanes, rank " << r;
      EXPECT_EQ(first_difference(again.left[at(r)], first.left[at(r)]), "") << lanes << " lanes, rank " << r;
      EXPECT_TRUE(first.sent[at(r)] == again.sent[at(r)]) << lanes << " lanes, rank " << r;
    }
  }
}

// A non-finite value on a rank that sends it makes all tensors NaN on all ranks at commit. The round leaves no
// residual, and the next round is correct.
TEST_P(ShardedSuite, Honesty) {
  Ranks all(open_loop(world()), options());
  auto kept = by_rank<Values>();
  for (int round = 0; round < 4; ++round) {
    const bool poisoned = round % 2 == 1;
    auto result = by_rank<Values>();
    auto after = by_rank<Values>();
    all.each([&](Rank r) {
      result[at(r)] = gradients(kSizes, Data::kDyadic, r, round);
      if (poisoned)  // one value of one range: of its owner in an all-gather, else of the next rank
        testing::each_range(
            kSizes, world(), [&](std::size_t k, std::size_t from, std::size_t to, std::size_t owner) {
              const std::size_t source = gathers() ? owner : (owner + 1) % static_cast<std::size_t>(world());
              if (k == 10 && owner == static_cast<std::size_t>(round % world()) && source == at(r) &&
                  from < to)
                result[at(r)][k][(from + to) / 2] = round == 1 ? std::numeric_limits<float>::quiet_NaN()
                                                               : std::numeric_limits<float>::infinity();
            });
      const Status s = synchronise_as(kind(), all[r], kSizes, result[at(r)]);
      EXPECT_TRUE(s.ok()) << text(s);
      after[at(r)] = residuals(all[r], kSizes);
    });
    const testing::Bounds cuts =
        testing::effective(testing::bounds_of(10, kSizes[10], world()), kSizes[10], world());
    const auto owner = static_cast<std::size_t>(round % world());
    const bool drops = poisoned && cuts[owner] < cuts[owner + 1];
    for (Rank r = 0; r < world(); ++r) {
      EXPECT_EQ(all[r].last_round_dropped(), drops) << "rank " << r << ", round " << round;
      for (std::size_t k = 0; k < std::size(kSizes); ++k)
        for (const float v : result[at(r)][k])
          ASSERT_EQ(std::isnan(v), drops) << "rank " << r << ", bucket " << k;
      ASSERT_TRUE(!drops || same_bits(kept[at(r)], after[at(r)])) << "rank " << r;
    }
    kept = std::move(after);
  }
}

// A saved session continues bit for bit.
TEST_P(ShardedSuite, Resume) {
  const auto go = [&](Ranks& all, int from, int to) {
    auto result = by_rank<Values>();
    all.each([&](Rank r) {
      for (int round = from; round < to; ++round) {
        result[at(r)] = gradients(kSizes, Data::kGaussian, r, round);
        const Status s = synchronise_as(kind(), all[r], kSizes, result[at(r)]);
        EXPECT_TRUE(s.ok()) << text(s);
      }
    });
    return result;
  };
  Ranks first(open_loop(world()), options());
  go(first, 0, 2);
  Ranks second(open_loop(world()), options());
  for (Rank r = 0; r < world(); ++r) {
    const Status s = second[r].restore(*first[r].state());
    ASSERT_TRUE(s.ok()) << text(s);
  }
  const std::vector<Values> want = go(first, 2, 4), got = go(second, 2, 4);
  for (Rank r = 0; r < world(); ++r) {
    EXPECT_TRUE(same_bits(want[at(r)], got[at(r)])) << "rank " << r;
    EXPECT_TRUE(same_bits(residuals(first[r], kSizes), residuals(second[r], kSizes))) << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ShardedSuite, ::testing::ValuesIn(testing::sharded_combinations()),
                         [](const auto& of) { return testing::label_of(of.param); });

// ---- Strategies

class ShardedStrategySuite : public ::testing::TestWithParam<std::tuple<const Strategy*, int>> {
 protected:
  const Strategy& strategy() const { return *std::get<0>(GetParam()); }
  int world() const { return std::get<1>(GetParam()); }
  Place place(Rank me) const { return {.me = me, .world = world(), .hosts = &hosts_}; }

 private:
  Hosts hosts_ = *Hosts::parse(testing::hosts_of(world()), world());
};

TEST_P(ShardedStrategySuite, OwnersStoreAndCostsMatchTheGraph) {
  const bool scatters = strategy().kind == RoundKind::kReduceScatter;
  const StrategyCost cost = strategy().cost(place(0));
  EXPECT_EQ(strategy().chunks(place(0)), world());
  std::map<std::pair<Rank, Rank>, int> open;  // sends without a recv
  int sent = 0, encodes = 0;
  double between = 0, within = 0;
  for (Rank r = 0; r < world(); ++r) {
    const Graph g = strategy().draw(place(r));
    std::vector<int> stored(static_cast<std::size_t>(world()));
    int frames = 0, made = 0, leave = 0;
    for (std::size_t k = 0; k < g.nodes().size(); ++k) {
      const Node& n = g.nodes()[k];
      if (n.op == Op::kEncode) ++made;
      if (n.op == Op::kStore) ++stored[static_cast<std::size_t>(n.arg)];
      if (n.op == Op::kSend) {
        ++frames;
        ++open[{r, n.arg}];
        const bool crosses = strategy().name != "hosts" || place(r).host_of(n.arg) != place(r).host_of(r);
        leave += crosses ? 1 : 0;
      }
      if (n.op == Op::kRecv) --open[{n.arg, r}];
    }
    for (Rank c = 0; c < world(); ++c)
      EXPECT_EQ(stored[static_cast<std::size_t>(c)], !scatters || c == r ? 1 : 0)
          << "rank " << r << ", chunk " << c;
    sent = std::max(sent, frames);
    encodes = std::max(encodes, made);
    between = std::max(between, 1.0 * leave / world());
    within = std::max(within, 1.0 * (frames - leave) / world());
  }
  for (const auto& [pair, left] : open) EXPECT_EQ(left, 0) << pair.first << " to " << pair.second;
  EXPECT_EQ(cost.frames_sent, sent);
  EXPECT_EQ(cost.encodes, encodes);
  EXPECT_DOUBLE_EQ(cost.wire_shares, between);
  EXPECT_DOUBLE_EQ(cost.inside_shares + cost.result_shares, within);
}

INSTANTIATE_TEST_SUITE_P(All, ShardedStrategySuite,
                         ::testing::Combine(::testing::ValuesIn(sharded_strategies().begin(),
                                                                sharded_strategies().end()),
                                            ::testing::Values(1, 2, 3, 4, 5, 8, 16)),
                         [](const auto& of) {
                           const Strategy& s = *std::get<0>(of.param);
                           return std::string(name(s.kind)) + "_" + std::string(s.name) + "_" +
                                  std::to_string(std::get<1>(of.param));
                         });

}  // namespace
}  // namespace tithe
