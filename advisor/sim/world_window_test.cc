// SPDX-License-Identifier: Apache-2.0
// Parts that wait for earlier ones (engine/program/program.h, "Window").
#include <gtest/gtest.h>

#include "advisor/sim/world.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sim {
namespace {

// If computation is nearly free, a part ends with a send; its end lets the next parts begin.
TEST(WorldWindow, PartsStartAfterTheLastSendOfEarlierParts) {
  constexpr std::size_t kValues = std::size_t{1} << 26, kPart = std::size_t{1} << 22;
  const PlanTensor tensor{"w", kValues, kValues};
  for (const char* strategy : {"ring", "server", "gather"}) {
    SCOPED_TRACE(strategy);
    const Choices choices = Choices::of({.spec = *parse_spec("fp32"),
                                         .strategy = find_strategy(strategy),
                                         .min_values = 0,
                                         .part_values = kPart});
    Workload work;
    work.buckets.push_back({.plan = make_plan({&tensor, 1}, choices)});
    Costs costs = default_costs();
    for (auto& [name, c] : costs.codecs) c = {};
    for (const Seconds latency : {0.0, 1e-3}) {
      const Result<Outcome> out = run(Cluster::flat(9, 1e9, latency, 8), costs, work, false, Extent::kAll);
      ASSERT_TRUE(out.ok()) << out.status().what();
      EXPECT_GT(out->step, 0);
    }
  }
}

}  // namespace
}  // namespace tithe::sim
