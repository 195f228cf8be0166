// SPDX-License-Identifier: Apache-2.0
// Worlds in which some ranks only sum for the others.
#include <gtest/gtest.h>

#include "advisor/sim/world.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sim {
namespace {

TEST(WorldServers, ServerLinkCarriesAllTrafficInBothDirections) {
  constexpr int kWorkers = 4;
  constexpr std::size_t kValues = 1'000'000;
  constexpr double kRate = 1e9;
  const PlanTensor tensor{"w", kValues, kValues};
  const Choices choices = Choices::of({.spec = *parse_spec("fp32"),
                                       .strategy = find_strategy("server"),
                                       .min_values = 0,
                                       .part_values = kValues,
                                       .world = kWorkers + 1,
                                       .servers = 1});
  Workload work;
  work.servers = 1;
  work.buckets.push_back({.plan = make_plan({&tensor, 1}, choices)});
  const Cluster cluster = Cluster::flat(kWorkers + 1, kRate, 0, 1);
  Costs costs = default_costs();
  costs.step = costs.post = costs.complete = costs.wake = costs.bucket = 0;
  for (auto& [name, c] : costs.codecs) c = {};
  const Result<Outcome> out = run(cluster, costs, work, false);
  ASSERT_TRUE(out.ok()) << out.status().what();
  EXPECT_EQ(out->ranks, 5U);
  const double payload = 4.0 * kValues;
  for (int r = 0; r < kWorkers; ++r) EXPECT_NEAR(out->bytes[static_cast<std::size_t>(r)], payload, 100);
  EXPECT_NEAR(out->bytes[kWorkers], kWorkers * payload, 400);
  // All payloads arrive, then all results leave: no value can be summed before the last worker's payload has arrived.
  EXPECT_NEAR(out->step, 2 * kWorkers * payload / kRate, 0.02 * payload / kRate);
}

}  // namespace
}  // namespace tithe::sim
