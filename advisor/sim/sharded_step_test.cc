// SPDX-License-Identifier: Apache-2.0
// The schedule of a sharded step, computed by hand, and simulated rounds beside rounds of sessions.
#include "advisor/sim/sharded_step.h"

#include <gtest/gtest.h>

#include "advisor/sim/world.h"
#include "engine/peers/session_config.h"
#include "support/ranks.h"

namespace tithe::sim {
namespace {

using ::tithe::testing::Ranks;
using ::tithe::testing::text;
using Cuts = std::vector<std::size_t>;
constexpr RoundKind kScatter = RoundKind::kReduceScatter, kGather = RoundKind::kAllGather;

// The root is unit 0, and computes first and last.
ShardedStep small_model(bool zero2) {
  return {.units = {{.gather = 1, .reduce = 1, .keeps = true},
                    {.gather = 2, .regather = 5, .reduce = 2, .keeps = zero2},
                    {.gather = 3, .regather = 5, .reduce = 4, .keeps = zero2}},
          .forward = {{0, 1}, {1, 2}, {2, 3}, {0, 1}},
          .backward = {{0, 2}, {2, 6}, {1, 4}, {0, 2}}};
}

// Forward: gather 0-1, compute 1-2, gather 2-4, compute 4-6, gather 6-9, compute 9-12, 12-13.
// Backward: compute 13-15 beside the gather 13-18; compute 18-24 beside the gather 18-23; reduce 24-28 beside
// compute 24-28; reduce 28-30 beside compute 28-30; reduce 30-31.
TEST(ShardedStep, Zero3GathersAgainOneUnitAhead) { EXPECT_DOUBLE_EQ(duration_of(small_model(false)), 31); }

// Backward: compute 13-15, 15-21, reduce 21-25 beside compute, reduce 25-27 beside compute, reduce 27-28.
TEST(ShardedStep, Zero2GathersInForwardAlone) { EXPECT_DOUBLE_EQ(duration_of(small_model(true)), 28); }

// Gathers 0-1, 1-3, 3-6; compute 1-2, 3-5, 6-9, 9-10.
TEST(ShardedStep, PrefetchInForwardHidesGathersBehindTheUnitBefore) {
  ShardedStep step = small_model(true);
  step.forward_prefetch = 1;
  EXPECT_DOUBLE_EQ(duration_of(step), 25);
  step.forward_prefetch = 9;
  EXPECT_DOUBLE_EQ(duration_of(step), 25);
}

// Unit 0 is gathered ahead, but behind the reduce-scatter of unit 2: gathers 0-1, 1-2, reduce 2-12, gather 12-13,
// reduce 13-23, reduce 23-33.
TEST(ShardedStep, RoundsRunOneAfterTheOther) {
  const ShardedUnit unit{.regather = 1, .reduce = 10};
  const ShardedStep step{
      .units = {unit, unit, unit}, .forward = {{0, 0}, {1, 0}, {2, 0}}, .backward = {{2, 1}, {1, 1}, {0, 1}}};
  EXPECT_DOUBLE_EQ(duration_of(step), 33);
}

// Backward does not compute unit 0 before the reduce-scatter of unit 2 has ended, although its weights are there.
TEST(ShardedStep, OneReduceScatterIsOpen) {
  const ShardedUnit unit{.reduce = 10, .keeps = true};
  const ShardedStep step{
      .units = {unit, unit, unit}, .forward = {{0, 0}, {1, 0}, {2, 0}}, .backward = {{2, 1}, {1, 1}, {0, 7}}};
  EXPECT_DOUBLE_EQ(duration_of(step), 31);  // reduce 1-11, 11-21; compute 11-18; reduce 21-31
}

// The bytes that each rank sends in one round of sessions.
std::vector<double> sent(const SessionOptions& options, int world, RoundKind kind, std::size_t n,
                         const Cuts& cuts) {
  Ranks ranks(open_loop(world), options);
  std::vector<double> bytes(static_cast<std::size_t>(world));
  ranks.each([&](Rank r) {
    std::vector<float> values(n, 0.5F);
    const Tensor t{.key = "w", .data = values.data(), .n = n, .bounds = cuts};
    const Result<Ticket> ticket = ranks[r].sync({&t, 1}, {}, kind);
    ASSERT_TRUE(ticket.ok()) << text(ticket.status());
    ASSERT_TRUE(ranks[r].wait(*ticket).ok());
    ASSERT_TRUE(ranks[r].commit().ok());
    bytes[static_cast<std::size_t>(r)] = static_cast<double>(ranks[r].stats().bytes_sent);
  });
  return bytes;
}

Plan plan_of(const SessionOptions& options, const Cluster& cluster, RoundKind kind, std::size_t n,
             const Cuts& cuts) {
  const Result<Choices> choices = engine::choices_of(options, cluster.world(), cluster.shared());
  EXPECT_TRUE(choices.ok()) << choices.status().what();
  const PlanTensor tensor[] = {{"w", n, n, cuts}};
  return make_plan(tensor, *choices, kind);
}

TEST(ShardedRounds, RanksSendAsManyBytesAsThoseOfSessions) {
  constexpr std::size_t kN = 40'000;
  const Cuts equal = equal_bounds(kN, 0, 4), uneven = {0, 0, 9'001, 9'002, kN};
  for (const char* codec : {"fp32", "bf16:feedback=none", "eden:bits=4,scale=unbiased", "fp8:feedback=none"})
    for (const char* strategy : {"auto", "ring", "hosts"})
      for (const RoundKind kind : {kScatter, kGather})
        for (const Cuts& cuts : {equal, uneven}) {
          const bool hosts = std::string_view(strategy) == "hosts";
          SessionOptions options{.codec = codec, .strategy = strategy, .min_values = 0};
          if (hosts) options.hosts = "2x2";
          const Cluster cluster =
              hosts ? Cluster::flat(2, {.ranks = 2}, 1e9, 1e-5, 4) : Cluster::flat(4, 1e9, 1e-5, 4);
          Workload work;
          work.buckets.push_back({.plan = plan_of(options, cluster, kind, kN, cuts)});
          const Result<Outcome> out = run(cluster, default_costs(), work, false, Extent::kAll);
          ASSERT_TRUE(out.ok()) << out.status().what();
          EXPECT_EQ(out->bytes, sent(options, 4, kind, kN, cuts))
              << codec << ' ' << strategy << ' ' << name(kind);
        }
}

// In one world, equal rounds share a timeline. Rounds of other kinds or bounds have their own.
TEST(ShardedRounds, TimelinesAreSharedByEqualRoundsAlone) {
  constexpr std::size_t kN = 1000;
  const Cluster cluster = Cluster::flat(2, 1e9, 0, 1);
  const SessionOptions options{.codec = "fp32", .min_values = 0};
  const auto bytes = [&](RoundKind kind, const Cuts& cuts) {
    Workload work;
    for (const RoundKind each : {kScatter, kGather})
      if (kind == RoundKind::kAllReduce || each == kind)
        work.buckets.push_back({.plan = plan_of(options, cluster, each, kN, cuts)});
    const Result<Outcome> out = run(cluster, default_costs(), work, false, Extent::kAll);
    EXPECT_TRUE(out.ok());
    return out->bytes[0] - 64.0 * static_cast<double>(work.buckets.size());
  };
  EXPECT_EQ(bytes(kScatter, {0, 900, kN}), 400);
  EXPECT_EQ(bytes(kGather, {0, 900, kN}), 3600);
  EXPECT_EQ(bytes(RoundKind::kAllReduce, {0, 900, kN}), 4000);  // both
}

}  // namespace
}  // namespace tithe::sim
