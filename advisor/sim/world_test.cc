// SPDX-License-Identifier: Apache-2.0
#include "advisor/sim/world.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "advisor/sim/step_timeline.h"
#include "tithe/connect.h"
#include "tithe/seam/catalogue.h"
#include "tithe/session.h"

namespace tithe::sim {
namespace {

Plan plan_for(const char* codec, const char* strategy, std::size_t n, std::size_t part = 1 << 30) {
  const Choices choices = Choices::of({.spec = *parse_spec(codec),
                                       .strategy = find_strategy(strategy),
                                       .min_values = 0,
                                       .part_values = part});
  const PlanTensor tensor[] = {{"w", n, n}};
  return make_plan(tensor, choices);
}

Costs free() {
  Costs costs = default_costs();
  costs.step = costs.post = costs.complete = costs.wake = costs.turn = costs.bucket = 0;
  for (auto& [name, c] : costs.codecs) c = {};
  return costs;
}

// If only the link costs time, the step follows from the strategy's cost: shares of a payload over the rate.
TEST(World, WireTimeFollowsTheStrategysShares) {
  constexpr double kRate = 1e8;
  for (const char* strategy : {"ring", "server", "gather", "aggregator"})
    for (const int world : {2, 3, 4, 8}) {
      SCOPED_TRACE(testing::Message() << strategy << " " << world);
      const std::size_t n = 840'000;
      const Cluster cluster = Cluster::flat(world, kRate, 0, 1);
      Workload work;
      work.buckets.push_back({.plan = plan_for("fp32", strategy, n)});
      const Result<Outcome> out = run(cluster, free(), work, false);
      ASSERT_TRUE(out.ok()) << out.status().what();
      const StrategyCost cost = find_strategy(strategy)->cost({.world = world});
      const double payload = 4.0 * static_cast<double>(n) / kRate;
      // One link is the bottleneck; the aggregator's link is used in both directions, one after the other.
      const double shares =
          std::string_view(strategy) == "aggregator" ? 2 * cost.wire_shares : cost.wire_shares;
      EXPECT_NEAR(out->step, shares * payload, 0.01 * payload);
      EXPECT_NEAR(out->bytes[0], cost.wire_shares * 4.0 * static_cast<double>(n),
                  64.0 * cost.frames_sent + 1);
    }
}

TEST(World, LatencyIsPaidOncePerStepOfTheChain) {
  for (const char* strategy : {"ring", "server", "gather"}) {
    const int world = 4;
    const Cluster cluster = Cluster::flat(world, 1e12, 1e-3, 1);
    Workload work;
    work.buckets.push_back({.plan = plan_for("fp32", strategy, 400)});
    const Result<Outcome> out = run(cluster, free(), work, false);
    ASSERT_TRUE(out.ok());
    const int steps = find_strategy(strategy)->cost({.world = world}).steps;
    EXPECT_NEAR(out->step, (steps + 1) * 1e-3, 1e-5) << strategy;  // one more for the end of the round
  }
}

TEST(World, CommunicationHiddenByComputeCostsNothing) {
  const Cluster cluster = Cluster::flat(2, 1e9, 0, 1);
  Workload work;
  work.compute = 1.0;
  work.buckets.push_back({.ready = 0.5, .plan = plan_for("fp32", "server", 1'000'000)});
  work.buckets.push_back({.ready = 1.0, .plan = plan_for("fp32", "server", 1'000'000)});
  const Result<Outcome> out = run(cluster, free(), work, false);
  ASSERT_TRUE(out.ok());
  EXPECT_NEAR(out->exposed, 4e-3, 1e-4);
}

// Every step runs once, and none before its predecessors.
TEST(World, EachStepRunsOnceInProgramOrder) {
  for (const char* codec : {"fp32", "onebit", "topk:ratio=0.01", "qsgd_shared"})
    for (const char* strategy : {"ring", "server", "gather"}) {
      SCOPED_TRACE(testing::Message() << codec << " " << strategy);
      const Cluster cluster = Cluster::flat(4, 1e8, 1e-5, 2);
      Workload work;
      work.buckets.push_back({.plan = plan_for(codec, strategy, 100'000, 30'000)});
      work.buckets.push_back({.ready = 1e-3, .plan = plan_for(codec, strategy, 50'000)});
      const Result<Outcome> out = run(cluster, default_costs(), work, true);
      ASSERT_TRUE(out.ok()) << out.status().what();
      std::map<std::pair<int, int>, std::vector<Seconds>> ended;  // by bucket and part
      for (int bucket = 0; bucket < 2; ++bucket)
        for (std::size_t p = 0; p < work.buckets[static_cast<std::size_t>(bucket)].plan.parts.size(); ++p) {
          const int part = static_cast<int>(p);
          ended[{bucket, part}].resize(out->program(0, bucket, part).steps.size(), -1.0);
        }
      for (const Event& e : out->events) {
        if (e.rank != 0) continue;
        Seconds& end = ended.at({e.bucket, e.part})[static_cast<std::size_t>(e.step)];
        EXPECT_LT(end, 0) << "the step ran twice";
        end = e.end;
        EXPECT_LE(e.begin, e.end);
      }
      for (const auto& [where, ends] : ended) {
        const engine::Program& p = out->program(0, where.first, where.second);
        for (std::size_t s = 0; s < ends.size(); ++s) {
          EXPECT_GE(ends[s], 0) << "step " << s << " never ran";
          for (std::uint32_t k = 0; k < p.steps[s].next.count; ++k) {
            const auto after = static_cast<std::size_t>(p.indices[p.steps[s].next.first + k]);
            // A step after a send only depends on its posting.
            if (p.steps[s].kind == engine::StepKind::kSend) continue;
            EXPECT_LE(ends[s], ends[after]);
          }
        }
      }
    }
}

// The ranks that represent all must give the same result as all ranks, within 1 %, with every cost set.
void expect_as_all(int hosts, int ranks, const char* strategy, const char* codec, std::size_t simulated,
                   std::size_t part, SendProtocol leave = SendProtocol::kEager) {
  SCOPED_TRACE(testing::Message() << codec << " by " << strategy << " on " << hosts << "x" << ranks);
  Costs costs = default_costs();
  costs.checksum_byte = 1e-10;
  costs.send_byte = costs.receive_byte = 2e-10;
  costs.long_messages = {leave, 8192};
  const Result<Cluster> cluster =
      Cluster::parse("[[hosts]]\ncount = " + std::to_string(hosts) + "\nranks = " + std::to_string(ranks) +
                         "\ncores = 4\nrate = \"1Gb/s\"\nlatency = \"100us\"\ninside = "
                         "\"10GB/s\"\ninside_latency = \"5us\"\n",
                     "test.toml");
  ASSERT_TRUE(cluster.ok()) << cluster.status().what();
  Workload work;
  work.compute = 5e-3;
  const Choices choices = Choices::of({.spec = *parse_spec(codec),
                                       .strategy = find_strategy(strategy),
                                       .min_values = 0,
                                       .part_values = part,
                                       .world = cluster->world(),
                                       .hosts = cluster->shared()});
  const PlanTensor tensors[] = {{"w", 300'000, 300'000}, {"v", 90'001, 90'001}};
  work.buckets.push_back({.ready = 2e-3, .plan = make_plan({tensors, 1}, choices)});
  work.buckets.push_back({.ready = 5e-3, .plan = make_plan({tensors + 1, 1}, choices)});
  const Result<Outcome> all = run(*cluster, costs, work, false, Extent::kAll);
  const Result<Outcome> few = run(*cluster, costs, work, false, Extent::kFew);
  ASSERT_TRUE(all.ok()) << all.status().what();
  ASSERT_TRUE(few.ok()) << few.status().what();
  EXPECT_EQ(all->ranks, static_cast<std::size_t>(cluster->world()));
  EXPECT_EQ(few->ranks, simulated);
  EXPECT_NEAR(few->step, all->step, 0.01 * all->step);
  EXPECT_NEAR(few->bytes[0], all->bytes[0], 0.01 * all->bytes[0]);
}

TEST(World, OneRepresentativeEqualsAllRanks) {
  for (const int world : {2, 8, 16})
    for (const char* strategy : {"ring", "server", "gather"})
      for (const char* codec : {"fp32", "onebit", "topk:ratio=0.01"})
        expect_as_all(world, 1, strategy, codec, 1, 70'000);
}

TEST(World, RepresentativesEqualAllRanksOnSharedHosts) {
  for (const auto& [hosts, ranks] : {std::pair{4, 2}, std::pair{2, 4}, std::pair{4, 4}, std::pair{2, 8}})
    for (const char* codec : {"fp32", "onebit"}) {
      for (const char* strategy : {"server", "gather", "hosts", "hosts_ring"})
        expect_as_all(hosts, ranks, strategy, codec, 1, 150'000);
      expect_as_all(hosts, ranks, "ring", codec, static_cast<std::size_t>(ranks), 150'000);
    }
}

TEST(World, RepresentativesEqualAll64Ranks) {
  for (const char* strategy : {"server", "gather", "ring"})
    expect_as_all(64, 1, strategy, "onebit", 1, 1 << 20);
  for (const auto& [hosts, ranks] : {std::pair{16, 4}, std::pair{8, 8}}) {
    for (const char* strategy : {"server", "gather", "hosts", "hosts_ring"})
      expect_as_all(hosts, ranks, strategy, "onebit", 1, 1 << 20);
    expect_as_all(hosts, ranks, "ring", "onebit", static_cast<std::size_t>(ranks), 1 << 20);
  }
}

TEST(World, DifferingRanksAreAllSimulated) {
  for (const char* strategy : {"aggregator", "tree"}) {
    Workload work;
    work.buckets.push_back({.plan = plan_for("fp32", strategy, 1000)});
    const Result<Outcome> out =
        run(Cluster::flat(4, 1e8, 1e-4, 2), default_costs(), work, false, Extent::kFew);
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(out->ranks, 4U) << strategy;
  }
}

TEST(World, ExpectedPayloadIsTheBoundTimesTheTypicalFraction) {
  const Cluster cluster = Cluster::flat(2, 1e8, 0, 1);
  Workload work;
  work.buckets.push_back({.plan = plan_for("fp32", "gather", 1'000'000)});
  Costs costs = free();
  const Result<Outcome> whole = run(cluster, costs, work, false);
  costs.codecs["fp32"].typical = 0.25;
  const Result<Outcome> quarter = run(cluster, costs, work, false);
  ASSERT_TRUE(whole.ok() && quarter.ok());
  EXPECT_NEAR(whole->bytes[0], 4e6, 100);
  EXPECT_NEAR(quarter->bytes[0], 1e6, 100);
}

TEST(World, LanesShareTheCoresOfTheirMachine) {
  Workload work;
  work.buckets.push_back({.plan = plan_for("fp32", "gather", 1'000'000)});
  Costs costs = free();
  costs.codecs["fp32"].encode = {{{1e6, 1.0}}};
  const Result<Outcome> own = run(Cluster::flat(4, 1e12, 0, 1), costs, work, false, Extent::kAll);
  const Result<Outcome> shared = run(Cluster::flat(4, 1e12, 0, 2, true), costs, work, false, Extent::kAll);
  ASSERT_TRUE(own.ok() && shared.ok());
  EXPECT_NEAR(own->step, 1.0, 0.01);
  EXPECT_NEAR(shared->step, 2.0, 0.01);
}

// The ranks of each host have the default number of lanes for its cores, so the slowest host determines the step.
TEST(World, LanesDefaultToTheHostsCores) {
  const auto step = [](int cores, int lanes) {
    const Cluster cluster = Cluster::flat(2, 1e12, 0, cores);
    Workload work;
    work.lanes = lanes;
    work.buckets.push_back({.plan = plan_for("onebit", "gather", 1 << 20, 1 << 16)});
    return run(cluster, default_costs(), work, false)->step;
  };
  EXPECT_EQ(step(5, 0), step(5, 4));
  EXPECT_LT(step(5, 0), step(5, 1));
}

TEST(World, BucketStartCostIsCharged) {
  const Cluster cluster = Cluster::flat(2, 1e12, 0, 1);
  Workload work;
  work.buckets.push_back({.plan = plan_for("fp32", "gather", 1)});
  Costs costs = free();
  costs.bucket = 0.5;
  const Result<Outcome> out = run(cluster, costs, work, false);
  ASSERT_TRUE(out.ok());
  EXPECT_NEAR(out->step, 0.5, 1e-6);
}

// Alone and with one lane, timing decides nothing: the queue decides the order, here and in the engine.
TEST(World, StepsMatchTheEnginesTraceInOrder) {
  constexpr std::size_t kValues = 100'000, kPart = 30'000;
  std::vector<std::string> traced, simulated;
  auto ranks = open_loop(1);
  auto session =
      Session::open(std::move(ranks[0]), {.codec = "onebit", .strategy = "server", .part_values = kPart});
  ASSERT_TRUE(session.ok());
  std::vector<float> values(kValues, 1.0F);
  const Tensor bucket[] = {{.key = "w", .data = values.data(), .n = kValues, .row = kValues}};
  (*session)->trace(true);
  const Result<Ticket> ticket = (*session)->sync(bucket);
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE((*session)->wait(*ticket).ok());
  for (const TraceEvent& e : (*session)->take_trace())
    if (e.lane > 0)
      traced.push_back(std::string(e.op) + " " + std::to_string(e.part) + "." + std::to_string(e.chunk));

  Workload work;
  work.buckets.push_back({.plan = plan_for("onebit", "server", kValues, kPart)});
  const Result<Outcome> out = run(Cluster::flat(1, 1e8, 0, 1), default_costs(), work, true);
  ASSERT_TRUE(out.ok());
  constexpr std::string_view kNames[] = {"load", "own", "encode", "send", "recv", "check", "merge", "store"};
  for (const Event& e : out->events) {
    const engine::Step& s = out->step_of(e);
    simulated.push_back(std::string(kNames[static_cast<std::size_t>(s.kind)]) + " " + std::to_string(e.part) +
                        "." + std::to_string(s.chunk));
  }
  EXPECT_GE(traced.size(), 8U);
  EXPECT_EQ(simulated, traced);
}

TEST(World, SameInputGivesTheSameTimes) {
  const Cluster cluster = Cluster::flat(3, 1e8, 1e-5, 2);
  Workload work;
  work.buckets.push_back({.plan = plan_for("bf16", "ring", 100'000, 10'000)});
  const Result<Outcome> a = run(cluster, default_costs(), work, true),
                        b = run(cluster, default_costs(), work, true);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->step, b->step);
  ASSERT_EQ(a->events.size(), b->events.size());
  for (std::size_t k = 0; k < a->events.size(); ++k) EXPECT_EQ(a->events[k].end, b->events[k].end);
}

// A world that reuses cached timelines takes the same time, whether one rank or the ranks of a host represent all.
TEST(World, CachesSharedBetweenWorldsChangeNoTime) {
  const Cluster cluster = Cluster::flat(5, {.ranks = 4}, 1e8, 1e-5, 4);
  TimelineCache library;
  for (int time = 0; time < 2; ++time)
    for (const char* strategy : {"server", "hosts", "ring"})
      for (const std::size_t values : {100'000, 70'000}) {
        Workload work;
        work.buckets.push_back({.plan = plan_for("bf16", strategy, values, 10'000)});
        const Result<Outcome> alone = run(cluster, default_costs(), work, false);
        const Result<Outcome> shared =
            run(cluster, default_costs(), work, false, Extent::kNeeded, kNever, &library);
        ASSERT_TRUE(alone.ok() && shared.ok());
        EXPECT_EQ(alone->step, shared->step) << strategy;
        EXPECT_EQ(alone->bytes, shared->bytes);
      }
}

TEST(World, UnmeasuredCodecIsRefusedByName) {
  const Cluster cluster = Cluster::flat(2, 1e8, 0, 1);
  Workload work;
  work.buckets.push_back({.plan = plan_for("bf16", "ring", 100)});
  Costs costs = default_costs();
  costs.codecs.erase("bf16");
  const Result<Outcome> out = run(cluster, costs, work, false);
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.status().what().find("bf16"), std::string::npos);
}

}  // namespace
}  // namespace tithe::sim
