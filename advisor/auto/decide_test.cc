// SPDX-License-Identifier: Apache-2.0
// A world with known numbers: step times come from the simulator, for links with a rate that decide() does not get.
#include "advisor/auto/decide.h"

#include <gtest/gtest.h>

#include "tithe/seam/catalogue.h"

namespace tithe::automatic {
namespace {

Rule all(const char* codec) {
  return {.codec = *parse_spec(codec), .strategy = "server", .part_values = kDefaultPartValues};
}

AutoQuery auto_query(std::initializer_list<const char*> allowed, std::vector<Rule> rules = {all("bf16")}) {
  AutoQuery a;
  a.world = 4;
  a.cores = 8;
  a.costs = sim::assumed_costs();
  a.job.compute = 50e-3;
  const std::size_t sizes[] = {1'000'000, 1000, 2'000'000, 2000, 500'000, 64, 4'000'000, 4096};
  for (std::size_t t = 0; t < std::size(sizes); ++t) {
    const Seconds ready = a.job.compute * (0.4 + 0.6 * static_cast<double>(t + 1) / std::size(sizes));
    a.job.tensors.push_back({"layer" + std::to_string(t), sizes[t], sizes[t], ready});
    if (t % 2 == 1) a.job.bucket_ends.push_back(t + 1);
  }
  for (const char* text : allowed) a.allowed.push_back(*parse_allowance(text));
  a.rules = a.in_full = std::move(rules);
  a.first = {all("bf16")};
  return a;
}

// The step under these rules on links with this rate.
Seconds step_of(const AutoQuery& a, std::span<const Rule> rules, double rate) {
  const planner::PlanQuery q{a.job, *cluster_at(a, rate), a.costs, a.allowed};
  const Result<sim::Outcome> out = planner::simulate(q, rules);
  EXPECT_TRUE(out.ok()) << out.status().what();
  return out->step;
}

AutoDecision answer(AutoQuery& a, double rate) {
  a.step = step_of(a, a.in_full, rate);
  const Result<AutoDecision> out = decide(a);
  EXPECT_TRUE(out.ok()) << out.status().what();
  return *out;
}

TEST(Decide, FindsTheUnknownLinkRate) {
  for (const double rate : {12.5e6, 125e6, 300e6}) {
    AutoQuery a = auto_query({"onebit"});
    const AutoDecision found = answer(a, rate);
    EXPECT_NEAR(found.bytes_per_second, rate, 0.03 * rate);
    EXPECT_FALSE(found.stays) << found.verdict;
    EXPECT_NEAR(found.predicted, step_of(a, found.rules, rate), 0.05 * found.predicted);
    EXPECT_LT(found.predicted, 0.98 * a.step);
  }
}

TEST(Decide, FindsTheLinkRateUnderAPlan) {
  AutoQuery a = auto_query({"onebit"});
  const AutoDecision at_first = answer(a, 125e6);
  a.rules = a.in_full = at_first.rules;
  const AutoDecision slower = answer(a, 12.5e6);  // the link is ten times slower now
  EXPECT_NEAR(slower.bytes_per_second, 12.5e6, 0.05 * 12.5e6);
}

TEST(Decide, KeepsAnEqualPlan) {
  AutoQuery a = auto_query({"onebit"});
  a.rules = a.in_full = answer(a, 60e6).rules;
  const AutoDecision again = answer(a, 60e6);
  EXPECT_EQ(again.rules, a.rules);
  EXPECT_TRUE(again.stays);
  EXPECT_NE(again.verdict.find("keeps its plan"), std::string::npos) << again.verdict;
  EXPECT_TRUE(loses(again.rules));
}

TEST(Decide, WithoutPermissionNoLossyCodecIsChosen) {
  AutoQuery a = auto_query({});
  const AutoDecision found = answer(a, 12.5e6);
  EXPECT_FALSE(loses(found.rules)) << found.verdict;
  for (const Rule& r : found.rules) EXPECT_TRUE(always_allowed(*r.codec));
}

TEST(Decide, KeepsThePlanIfNothingIsGained) {
  AutoQuery a = auto_query({"onebit"});
  const AutoDecision fast = answer(a, 50e9);
  EXPECT_TRUE(fast.stays);
  EXPECT_EQ(fast.bytes_per_second, 0);
  EXPECT_EQ(fast.rules, a.rules);
  EXPECT_NE(fast.verdict.find("keeps the current rules"), std::string::npos) << fast.verdict;

  AutoQuery dear = auto_query({"onebit"});  // a codec that takes a second per million values
  for (auto& [name, codec] : dear.costs.codecs)
    if (name != "fp32" && name != "bf16")
      codec.encode.points = codec.store.points = codec.merge.points = {{1e6, 1.0}};
  const AutoDecision found = answer(dear, 125e6);
  EXPECT_FALSE(loses(found.rules)) << found.verdict;
}

TEST(Decide, HiddenCommunicationNeedsNoCompression) {
  AutoQuery a = auto_query({"onebit"}, {all("onebit")});
  const AutoDecision found = answer(a, 50e9);
  EXPECT_FALSE(found.stays);
  EXPECT_EQ(found.rules, a.first);
}

TEST(Decide, HostsWithSeveralRanks) {
  AutoQuery a = auto_query({"onebit"});
  a.hosts = *Hosts::parse("2x2", 4);
  const Result<sim::Cluster> two = cluster_at(a, 125e6);
  ASSERT_TRUE(two.ok()) << two.status().what();
  EXPECT_EQ(two->hosts().size(), 2U);
  EXPECT_EQ(two->world(), 4);
  const AutoDecision found = answer(a, 125e6);
  EXPECT_NEAR(found.bytes_per_second, 125e6, 0.03 * 125e6);
  a.hosts = *Hosts::parse("1x4", 4);
  EXPECT_EQ(cluster_at(a, 125e6)->machine_cores().size(), 1U);
}

TEST(Decide, UnsatisfiableConstraintIsNamed) {
  AutoQuery a = auto_query({"onebit", "embedding*: fp32"});
  a.step = 0.1;
  const Result<AutoDecision> none = decide(a);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().what().find("'embedding*: fp32': no tensor of the model has such a key"),
            std::string::npos)
      << none.status().what();
}

TEST(Decide, SameMeasurementsGiveTheSameDecision) {
  AutoQuery a = auto_query({"onebit", "fp8"});
  const AutoDecision one = answer(a, 60e6), two = answer(a, 60e6);
  EXPECT_EQ(one.rules, two.rules);
  EXPECT_EQ(one.verdict, two.verdict);
}

}  // namespace
}  // namespace tithe::automatic
