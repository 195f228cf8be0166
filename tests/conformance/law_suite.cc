// SPDX-License-Identifier: Apache-2.0
// The four laws (docs/inside/flow.md) in whole sessions: covers every pair of codec, strategy, world and transport,
// and every size; `make test-full` runs the whole products.
#include "feedback/residual_store.h"
#include "support/delayed_transport.h"
#include "support/gpu/gpu_round.h"
#include "support/law_cases.h"
#include "support/ledger.h"

namespace tithe {
namespace {

using testing::at;
using testing::Combination;
using testing::Data;
using testing::DelayedTransport;
using testing::first_difference;
using testing::gradients;
using testing::imbalance;
using testing::Ranks;
using testing::residuals;
using testing::same_bits;
using testing::SentDigest;
using testing::text;
using testing::Values;

// The largest tensor is split into three parts. With two ranks, each sends a full block and part of a block of every
// codec.
constexpr std::size_t kSizes[] = {0, 1, 7, 8, 9, 31, 32, 33, 255, 256, 4097, 30'011};
// For worlds of processes, where large frames use another protocol.
constexpr std::size_t kLargeSizes[] = {0, 1, 7, 8, 9, 31, 32, 33, 255, 256, 4097, 100'003};
// For tests with many repetitions: a full and a partial block of every codec, and several parts.
constexpr std::size_t kFewSizes[] = {0, 1, 9, 33, 257, 4097};

class LawSuite : public ::testing::TestWithParam<Combination> {
 protected:
  int world() const { return GetParam().world; }
  std::span<const std::size_t> sizes() const {
    return GetParam().between_processes ? std::span(kLargeSizes) : std::span(kSizes);
  }
  SessionOptions options() const {
    return {.strategy = std::string(GetParam().strategy->name),
            .hosts = GetParam().hosts,
            .lanes = 0,
            .average = false,
            .min_values = 0,
            .part_values = sizes().back() * 2 / 5,
            // Without lanes no rank answers while a program is compiled and verified.
            .timeout = std::chrono::seconds(GetParam().gpus ? 900 : 30),
            .seed = 7,
            .device = GetParam().gpus ? "on,min_values=1" : "off",
            .spec = GetParam().law.spec,
            .rules = GetParam().law.rules};
  }
  // One round. Of three ranks, one has its tensors in host memory in any case.
  Status synchronise(Session& session, std::span<const std::size_t> sizes, Values& values,
                     bool gpus = true) const {
    return gpus && GetParam().gpus && session.rank() % 3 != 1
               ? testing::synchronise_there(session, sizes, values)
               : testing::synchronise(session, sizes, values);
  }
  Ranks ranks(const SessionOptions& o) const {
    return Ranks(testing::open_world(GetParam().transport, world()), o);
  }
  template <typename T>
  std::vector<T> by_rank() const {
    return std::vector<T>(static_cast<std::size_t>(world()));
  }
};

TEST_P(LawSuite, LedgerAndIdentity) {
  const Traits traits = GetParam().law.traits();
  for (const Data data : {Data::kDyadic, Data::kGaussian}) {
    Ranks all = ranks(options());
    auto before = by_rank<Values>();
    for (Rank r = 0; r < world(); ++r) before[at(r)] = residuals(all[r], sizes());
    for (int round = 0; round < 3; ++round) {
      auto grads = by_rank<Values>();
      auto result = by_rank<Values>();
      auto after = by_rank<Values>();
      all.each([&](Rank r) {
        grads[at(r)] = gradients(sizes(), data, r, round);
        result[at(r)] = grads[at(r)];
        const Status s = synchronise(all[r], sizes(), result[at(r)]);
        EXPECT_TRUE(s.ok()) << text(s);
        after[at(r)] = residuals(all[r], sizes());
      });
      for (Rank r = 1; r < world(); ++r)
        ASSERT_EQ(first_difference(result[at(r)], result[0]), "")
            << "rank " << r << " and 0, round " << round;
      const bool exact = traits.exact_ledger && data == Data::kDyadic;
      const testing::Imbalance off = imbalance(grads, before, result[0], after, traits, exact);
      ASSERT_LE(off.times, exact ? 0 : 1)
          << off << ", round " << round << (data == Data::kDyadic ? ", dyadic" : ", Gaussian");
      before = std::move(after);
    }
  }
}

// Same inputs give the same bytes, for any number of lanes, order of arrival, instruction set and location of
// tensors.
TEST_P(LawSuite, Repeatability) {
  struct Run {
    std::vector<Values> result, left;
    std::vector<SentDigest> sent;
  };
  const auto run = [&](int lanes, bool late, bool reference, unsigned seed, bool gpus) {
    Run out{by_rank<Values>(), by_rank<Values>(), by_rank<SentDigest>()};
    auto transports = testing::open_world(GetParam().transport, world());
    for (Rank r = 0; r < world(); ++r)
      transports[at(r)] = std::make_unique<DelayedTransport>(
          std::move(transports[at(r)]), seed + static_cast<unsigned>(r), late, &out.sent[at(r)]);
    SessionOptions o = options();
    o.lanes = lanes;
    o.force_reference = reference;
    Ranks all(std::move(transports), o);
    all.each([&](Rank r) {
      for (int round = 0; round < 2; ++round) {
        out.result[at(r)] = gradients(kFewSizes, Data::kGaussian, r, round);
        const Status s = synchronise(all[r], kFewSizes, out.result[at(r)], gpus);
        EXPECT_TRUE(s.ok()) << text(s);
      }
      out.left[at(r)] = residuals(all[r], kFewSizes);
    });
    return out;
  };
  const Run first = run(0, false, false, 1, false);
  for (int lanes = 0; lanes <= 4; ++lanes) {
    if (GetParam().between_processes && lanes % 2 == 1) continue;  // opening a world costs more there
    const bool reference = lanes == 2;
    const Run again = run(lanes, true, reference, 10U * static_cast<unsigned>(lanes + 1), true);
    for (Rank r = 0; r < world(); ++r) {
      EXPECT_EQ(first_difference(again.result[at(r)], first.result[at(r)]), "")
          << lanes << " lanes, rank " << r;
      EXPECT_EQ(first_difference(again.left[at(r)], first.left[at(r)]), "") << lanes << " lanes, rank " << r;
      EXPECT_TRUE(first.sent[at(r)] == again.sent[at(r)]) << lanes << " lanes, rank " << r;
    }
  }
}

// A non-finite value on one rank gives NaN on all ranks, the round leaves no residual, and the next round is correct.
TEST_P(LawSuite, Honesty) {
  Ranks all = ranks(options());
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  auto kept = by_rank<Values>();
  for (int round = 0; round < 4; ++round) {
    const bool poisoned = round % 2 == 1;
    const Rank source = round % world();
    auto grads = by_rank<Values>();
    auto result = by_rank<Values>();
    auto after = by_rank<Values>();
    all.each([&](Rank r) {
      grads[at(r)] = gradients(kFewSizes, Data::kDyadic, r, round);
      if (poisoned && r == source)
        // The buckets in between must become NaN too.
        for (std::size_t k = 1; k < std::size(kFewSizes); k += 2) {
          std::vector<float>& v = grads[at(r)][k];
          v[v.size() * 2 / 3] = bad[round / 2];
        }
      result[at(r)] = grads[at(r)];
      const Status s = synchronise(all[r], kFewSizes, result[at(r)]);
      EXPECT_TRUE(s.ok()) << text(s);
      after[at(r)] = residuals(all[r], kFewSizes);
      EXPECT_EQ(all[r].last_round_dropped(), poisoned);
    });
    for (Rank r = 0; r < world(); ++r) {
      for (std::size_t k = 0; k < std::size(kFewSizes); ++k)
        for (const float v : result[at(r)][k])
          ASSERT_EQ(std::isnan(v), poisoned) << "rank " << r << ", bucket " << k;
      ASSERT_TRUE(!poisoned || same_bits(kept[at(r)], after[at(r)])) << "rank " << r;
    }
    kept = std::move(after);
  }
}

bool all_zero(const std::vector<float>& v) {
  return std::ranges::all_of(v, [](float x) { return x == 0.0F; });
}

// A tensor's residual after a dropped round is unchanged, or 0 if it exceeded the limit for residuals.
bool kept_or_let_go(const Values& before, const Values& after) {
  for (std::size_t k = 0; k < before.size(); ++k) {
    const bool beyond =
        std::ranges::any_of(before[k], [](float x) { return std::fabs(x) > feedback::kMaxResidual; });
    if (beyond ? !all_zero(after[k]) : !same_bits({before[k]}, {after[k]})) return false;
  }
  return true;
}

// Finite values at the limits of the float range do no damage: a round whose sums overflow is dropped by all ranks,
// and leaves the residuals unchanged or discards them (spike_suite.cc); a committed round is complete, with finite
// residuals.
TEST_P(LawSuite, ExtremesAreExactOrDroppedByAllRanks) {
  if (GetParam().between_processes) GTEST_SKIP() << "the same frames";
  const Traits traits = GetParam().law.traits();
  Ranks all = ranks(options());
  auto before = by_rank<Values>();
  for (Rank r = 0; r < world(); ++r) before[at(r)] = residuals(all[r], kFewSizes);
  int round = 0;
  for (const Data data : testing::kExtremeData)
    for (const Data now : {data, Data::kGaussian}) {
      auto grads = by_rank<Values>();
      auto result = by_rank<Values>();
      auto after = by_rank<Values>();
      auto dropped = by_rank<int>();
      auto let_go = by_rank<std::uint64_t>();
      all.each([&](Rank r) {
        grads[at(r)] = gradients(kFewSizes, now, r, round);
        result[at(r)] = grads[at(r)];
        const std::uint64_t had = all[r].stats().values_dropped;
        const Status s = synchronise(all[r], kFewSizes, result[at(r)]);
        EXPECT_TRUE(s.ok()) << text(s);
        let_go[at(r)] = all[r].stats().values_dropped - had;
        dropped[at(r)] = all[r].last_round_dropped() ? 1 : 0;
        after[at(r)] = residuals(all[r], kFewSizes);
      });
      for (Rank r = 0; r < world(); ++r) {
        ASSERT_EQ(dropped[at(r)], dropped[0]) << "rank " << r << ", round " << round;
        ASSERT_TRUE(same_bits(result[0], result[at(r)])) << "rank " << r << ", round " << round;
        if (dropped[at(r)] != 0) {
          ASSERT_TRUE(kept_or_let_go(before[at(r)], after[at(r)])) << "rank " << r << ", round " << round;
          continue;
        }
        for (const Values* values : {&result[at(r)], &after[at(r)]})
          for (const std::vector<float>& v : *values)
            for (const float x : v) ASSERT_TRUE(std::isfinite(x)) << "rank " << r << ", round " << round;
      }
      if (dropped[0] == 0) {
        // Values discarded on some rank have no balance per value.
        for (std::size_t k = 0; k < std::size(kFewSizes); ++k)
          for (Rank r = 0; r < world(); ++r)
            if (let_go[at(r)] > 0 && all_zero(after[at(r)][k])) result[0][k].clear();
        const testing::Imbalance off = imbalance(grads, before, result[0], after, traits, false);
        ASSERT_LE(off.times, 1) << off << ", round " << round;
      }
      if (round < 2) {  // the smallest floats, and ordinary ones
        ASSERT_EQ(dropped[0], 0) << "round " << round;
      }
      before = std::move(after);
      ++round;
    }
}

// A saved session continues bit for bit in sessions of the same world size; another size is refused with the cure.
TEST_P(LawSuite, Resume) {
  auto saved = by_rank<std::vector<std::uint8_t>>();
  const auto go = [&](Ranks& all, int from, int to) {
    auto result = by_rank<Values>();
    all.each([&](Rank r) {
      for (int round = from; round < to; ++round) {
        result[at(r)] = gradients(kFewSizes, Data::kGaussian, r, round);
        const Status s = synchronise(all[r], kFewSizes, result[at(r)]);
        EXPECT_TRUE(s.ok()) << text(s);
      }
    });
    return result;
  };
  Ranks first = ranks(options());
  go(first, 0, 2);
  for (Rank r = 0; r < world(); ++r) saved[at(r)] = *first[r].state();
  const std::vector<Values> want = go(first, 2, 4);

  Ranks second = ranks(options());
  for (Rank r = 0; r < world(); ++r) {
    const Status s = second[r].restore(saved[at(r)]);
    ASSERT_TRUE(s.ok()) << text(s);
  }
  const std::vector<Values> got = go(second, 2, 4);
  for (Rank r = 0; r < world(); ++r) {
    EXPECT_TRUE(same_bits(want[at(r)], got[at(r)])) << "rank " << r;
    EXPECT_TRUE(same_bits(residuals(first[r], kFewSizes), residuals(second[r], kFewSizes))) << "rank " << r;
  }

  SessionOptions other = options();
  other.hosts.clear();  // host names are those of this world
  Ranks larger(open_loop(world() + 1), other);
  const Status refused = larger[0].restore(saved[0]);
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_NE(refused.what().find("resume with " + std::to_string(world()) + " ranks"), std::string::npos)
      << refused.what();
}

INSTANTIATE_TEST_SUITE_P(Gpus, LawSuite, ::testing::ValuesIn(testing::gpu_combinations()), testing::label);
INSTANTIATE_TEST_SUITE_P(All, LawSuite, ::testing::ValuesIn(testing::combinations()), testing::label);

}  // namespace
}  // namespace tithe
