// SPDX-License-Identifier: Apache-2.0
#include "advisor/auto/step_advice.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tithe/seam/catalogue.h"

namespace tithe::automatic {
namespace {

AutoQuery auto_query(std::initializer_list<const char*> allowed) {
  AutoQuery a;
  a.world = 4;
  a.cores = 8;
  a.costs = sim::assumed_costs();
  a.job.compute = 50e-3;
  for (std::size_t t = 0; t < 8; ++t) {
    a.job.tensors.push_back(
        {"layer" + std::to_string(t), 1'000'000, 1000, 0.1 * a.job.compute * static_cast<double>(t + 2)});
    a.job.bucket_ends.push_back(t + 1);
  }
  for (const char* text : allowed) a.allowed.push_back(*parse_allowance(text));
  a.rules = a.in_full =
      a.first = {{.codec = *parse_spec("fp32"), .strategy = "server", .part_values = kDefaultPartValues}};
  return a;
}

TEST(Advice, SlowLinkNamesTheShortestStepAndItsAllowances) {
  for (const bool onebit : {false, true}) {
    AutoQuery a = onebit ? auto_query({"onebit"}) : auto_query({});
    a.step = 2;
    const Result<Advice> found = advise(a);
    ASSERT_TRUE(found.ok()) << found.status().what();
    EXPECT_GT(found->bytes_per_second, 0);
    EXPECT_FALSE(found->stays);
    EXPECT_LT(found->bf16, 0.7 * a.step);
    EXPECT_LT(found->planned, onebit ? 0.5 * found->bf16 : 1.01 * found->bf16);
    EXPECT_GE(found->planned, found->no_network);
    EXPECT_LT(found->hinted, 1.01 * found->planned);
    const auto json = nlohmann::json::parse(to_json(*found, a));
    EXPECT_EQ(json.at("lines").size(), 3U);
    EXPECT_EQ(json.at("rules").at("rules").size(), found->rules.size());
  }
}

TEST(Advice, HiddenCommunicationNeedsNoChange) {
  AutoQuery a = auto_query({"onebit"});
  a.step = 1.01 * a.job.compute;
  const Result<Advice> found = advise(a);
  ASSERT_TRUE(found.ok()) << found.status().what();
  EXPECT_TRUE(found->stays);
  EXPECT_EQ(found->bytes_per_second, 0);
  EXPECT_EQ(found->planned, a.step);
  EXPECT_NE(to_json(*found, a).find("Keep the current settings"), std::string::npos);
}

TEST(Advice, ExistingAllowanceIsNoHint) {
  AutoQuery a = auto_query({"fp8"});
  a.step = 2;
  const Result<Advice> found = advise(a);
  ASSERT_TRUE(found.ok()) << found.status().what();
  EXPECT_EQ(found->hinted, 0);
}

TEST(Advice, RefusesAnAllowanceThatMatchesNoTensor) {
  AutoQuery a = auto_query({"nothing.*: onebit"});
  a.step = 2;
  EXPECT_EQ(advise(a).status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tithe::automatic
