// SPDX-License-Identifier: Apache-2.0
// Compares the simulator with closed formulas: chain length times latency plus bytes over rate, without other costs.
// Also checks when long messages are sent, by the transport's rule.
#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "advisor/sim/world.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/frame.h"

namespace tithe::sim {
namespace {

constexpr Seconds kFar = 1e-3, kNear = 1e-5;
constexpr double kRate = 1e8, kInside = 1e10;
constexpr double kWithin = 0.03;

Costs free_of_work(LongMessages rule) {
  Costs costs = default_costs();
  costs.step = costs.post = costs.complete = costs.wake = costs.turn = costs.bucket = 0;
  for (auto& [name, c] : costs.codecs) c = {};
  costs.long_messages = rule;
  return costs;
}

Cluster hosts_of(int hosts, int ranks) {
  return Cluster::flat(hosts, {.ranks = ranks, .bytes_per_second = kInside, .latency = kNear}, kRate, kFar,
                       1);
}

Seconds step(const Cluster& cluster, const char* strategy, std::size_t values, LongMessages rule = {},
             double many_to_one = 1, Extent extent = Extent::kNeeded) {
  const Choices choices = Choices::of({.spec = *parse_spec("fp32"),
                                       .strategy = find_strategy(strategy),
                                       .min_values = 0,
                                       .part_values = std::size_t{1} << 30,
                                       .world = cluster.world(),
                                       .hosts = cluster.shared()});
  const PlanTensor tensor[] = {{"w", values, values}};
  Workload work;
  work.buckets.push_back({.plan = make_plan(tensor, choices)});
  Costs costs = free_of_work(rule);
  costs.many_to_one = many_to_one;
  const Result<Outcome> out = run(cluster, costs, work, false, extent);
  EXPECT_TRUE(out.ok()) << out.status().what();
  return out->step;
}

constexpr double kHeader = kFrameHeaderBytes;

// The expected step with one host per rank and payloads of `bytes`. Each step ends with a message to all ranks.
Seconds by_hand(std::string_view strategy, int world, double bytes) {
  const double n = world, chunk = (bytes / n + kHeader) / kRate, whole = (bytes + kHeader) / kRate;
  if (strategy == "ring") return 2 * (n - 1) * (kFar + chunk) + kFar;
  if (strategy == "server") return 2 * (kFar + (n - 1) * chunk) + kFar;
  if (strategy == "gather") return kFar + (n - 1) * whole + kFar;
  // tree, with 2^k - 1 ranks: two children share their parent's link in both directions.
  const int depth = std::bit_width(static_cast<unsigned>(world)) - 1;
  return 2 * depth * (kFar + 2 * whole) + kFar;
}

// Sizes for which latency dominates, for which both matter, and for which bytes dominate.
class ClosedForms : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ClosedForms, RingServerAndGatherFrom2To1024Ranks) {
  for (const char* strategy : {"ring", "server", "gather"})
    for (const int world : {2, 3, 4, 16, 64, 256, 1024}) {
      SCOPED_TRACE(testing::Message() << strategy << ", " << world << " ranks");
      const double bytes = 4.0 * static_cast<double>(GetParam());
      const Seconds hand = by_hand(strategy, world, bytes);
      EXPECT_NEAR(step(Cluster::flat(world, kRate, kFar, 1), strategy, GetParam()), hand, kWithin * hand);
    }
}

TEST_P(ClosedForms, TreeFrom3To1023Ranks) {
  for (const int world : {3, 7, 15, 63, 255, 1023}) {
    SCOPED_TRACE(testing::Message() << world << " ranks");
    const Seconds hand = by_hand("tree", world, 4.0 * static_cast<double>(GetParam()));
    EXPECT_NEAR(step(Cluster::flat(world, kRate, kFar, 1), "tree", GetParam()), hand, kWithin * hand);
  }
}

// Sums inside hosts, `server` between hosts, results inside hosts. The first chunks overlap the summing of later ones,
// so at least half of the inside time counts.
TEST_P(ClosedForms, HostsFrom2To1024Ranks) {
  for (const auto& [hosts, ranks] :
       {std::pair{2, 1}, std::pair{2, 2}, std::pair{4, 4}, std::pair{8, 8}, std::pair{128, 8}}) {
    SCOPED_TRACE(testing::Message() << hosts << " hosts of " << ranks);
    const double h = hosts, l = ranks, chunk = 4.0 * static_cast<double>(GetParam()) / (h * l) + kHeader;
    const Seconds inside = ranks > 1 ? kNear + l * (l - 1) * h * chunk / kInside : 0;
    const Seconds between = 2 * (kFar + l * (h - 1) * chunk / kRate) + kFar;
    const Seconds found = step(hosts_of(hosts, ranks), "hosts", GetParam());
    EXPECT_GE(found, (1 - kWithin) * (between + inside));
    EXPECT_LE(found, (1 + kWithin) * (between + 2 * inside));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ClosedForms, ::testing::Values(1 << 14, 1 << 20, 1 << 24));

// Over TCP no transport uses a rendezvous protocol, so long messages must not cost two more latencies per hop.
TEST(LongMessages, RingPaysALatencyPerHop) {
  const Seconds hand = by_hand("ring", 8, 4 << 20);
  EXPECT_NEAR(step(Cluster::flat(8, kRate, kFar, 1), "ring", 1 << 20), hand, kWithin * hand);
  EXPECT_EQ(assumed_costs().long_messages.protocol, SendProtocol::kEager);
}

// Two ranks send to each other at once: one latency; with a grant first, two; with question, answer and message, three.
TEST(LongMessages, FollowTheTransportsSendWindow) {
  const Cluster two = Cluster::flat(2, 1e12, kFar, 1);
  const auto ways = [&](SendProtocol leave, std::size_t above) {
    // Without the message that ends the round.
    return (step(two, "gather", 10'000, {leave, above}) - kFar) / kFar;
  };
  EXPECT_NEAR(ways(SendProtocol::kEager, 0), 1, 0.01);
  EXPECT_NEAR(ways(SendProtocol::kPosted, 4096), 2, 0.01);
  EXPECT_NEAR(ways(SendProtocol::kRendezvous, 4096), 3, 0.01);
  EXPECT_NEAR(ways(SendProtocol::kPosted, 1 << 20), 1, 0.01) << "a message of 40 kB is below the limit";
  EXPECT_NEAR(ways(SendProtocol::kRendezvous, 1 << 20), 1, 0.01);
}

// In a ring with many hops, receives are posted early and grants arrive early, so the grant costs one latency in total.
TEST(LongMessages, EarlyControlMessagesCostNothing) {
  const Cluster cluster = Cluster::flat(8, kRate, kFar, 1);
  const Seconds at_once = step(cluster, "ring", 1 << 20);
  EXPECT_NEAR(step(cluster, "ring", 1 << 20, {SendProtocol::kPosted, 4096}), at_once + kFar, 0.1 * kFar);
  EXPECT_NEAR(step(cluster, "ring", 1 << 20, {SendProtocol::kRendezvous, 4096}), at_once + 14 * 2 * kFar,
              0.1 * kFar);
}

// If several ranks send to one, its link has a lower rate; a single sender gets the full rate.
TEST(ManyToOne, SeveralSendersReduceTheLinkRate) {
  constexpr double kShare = 0.8;
  constexpr std::size_t kValues = 1 << 22;
  const auto longer = [&](const char* strategy, int world, Extent extent) {
    const Cluster cluster = Cluster::flat(world, kRate, 0, 1);
    const Seconds whole = step(cluster, strategy, kValues, {}, 1, extent);
    return step(cluster, strategy, kValues, {}, kShare, extent) / whole;
  };
  for (const Extent extent : {Extent::kAll, Extent::kFew}) {
    EXPECT_NEAR(longer("server", 4, extent), 1 / kShare, 0.02);
    EXPECT_NEAR(longer("gather", 8, extent), 1 / kShare, 0.02);
    EXPECT_NEAR(longer("ring", 4, extent), 1, 1e-6);
    EXPECT_NEAR(longer("server", 2, extent), 1, 1e-6);
  }
}

// The CPU cost of a byte is measured between hosts. Behind a slow link it is far more than inside a host.
TEST(IntraHost, CpuTimePerByteIsAtMostTheTransferTime) {
  const auto seconds = [](const Cluster& cluster, double of_byte) {
    const Choices choices = Choices::of({.spec = *parse_spec("fp32"),
                                         .strategy = find_strategy("gather"),
                                         .world = cluster.world(),
                                         .hosts = cluster.shared()});
    const PlanTensor tensor[] = {{"w", 1 << 20, 1 << 20}};
    Workload work;
    work.buckets.push_back({.plan = make_plan(tensor, choices)});
    Costs costs = free_of_work({});
    costs.send_byte = costs.receive_byte = of_byte;
    return run(cluster, costs, work, false)->step;
  };
  constexpr double kSlow = 1e-6;  // seconds per byte: a hundred times the link's
  const Cluster together = hosts_of(1, 2), apart = hosts_of(2, 1);
  EXPECT_LE(seconds(together, kSlow), 3 * seconds(together, 0));
  EXPECT_GT(seconds(together, kSlow), seconds(together, 0.1 / kInside));
  EXPECT_GT(seconds(apart, kSlow), 50 * seconds(apart, 0));
}

}  // namespace
}  // namespace tithe::sim
