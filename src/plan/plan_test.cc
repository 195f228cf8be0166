// SPDX-License-Identifier: Apache-2.0
// The promises at the top of plan.h.
#include "tithe/seam/plan.h"

#include <gtest/gtest.h>

#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

Choices choices(std::string_view codec) {
  return Choices::of({.spec = *parse_spec(codec),
                      .strategy = find_strategy("server"),
                      .min_values = 100,
                      .part_values = 1000});
}

Plan plan_of(std::span<const std::size_t> sizes, const Choices& choices,
             std::span<const std::size_t> rows = {}) {
  std::vector<PlanTensor> tensors;
  for (std::size_t t = 0; t < sizes.size(); ++t)
    tensors.push_back({.key = "t", .n = sizes[t], .row = rows.empty() ? 0 : rows[t]});
  return make_plan(tensors, choices);
}

Plan plan_of(std::span<const std::size_t> sizes, std::string_view codec,
             std::span<const std::size_t> rows = {}) {
  return plan_of(sizes, choices(codec), rows);
}

const std::vector<std::vector<std::size_t>> kBuckets = {{},
                                                        {0},
                                                        {1},
                                                        {99},
                                                        {100},
                                                        {1000},
                                                        {1001},
                                                        {5, 0, 7},
                                                        {5000, 3, 99, 100, 0, 2345, 50, 1},
                                                        {1000, 1000, 0, 0, 1}};

TEST(Plan, covers) {
  for (const auto& sizes : kBuckets) {
    std::size_t at = 0;
    for (const Part& p : plan_of(sizes, "topk").parts) {
      EXPECT_EQ(p.first, at);
      EXPECT_GT(p.n, 0U);
      at += p.n;
    }
    std::size_t values = 0;
    for (const std::size_t n : sizes) values += n;
    EXPECT_EQ(at, values);
  }
}

TEST(Plan, aligned) {
  for (const auto& sizes : kBuckets) {
    const Plan plan = plan_of(sizes, "topk");
    for (const Part& p : plan.parts) {
      std::size_t first = 0;
      bool starts_a_tensor = false, in_a_large_one = false;
      for (const std::size_t t : plan.order) {
        const std::size_t n = sizes[t];
        starts_a_tensor = starts_a_tensor || (n > 0 && p.first == first);
        in_a_large_one = in_a_large_one || (n > 1000 && p.first > first && p.first < first + n);
        first += n;
      }
      EXPECT_TRUE(starts_a_tensor || in_a_large_one) << p.first;
    }
  }
}

TEST(Plan, shaped) {
  const std::size_t sizes[] = {3000, 640};
  const std::size_t rows[] = {30, 640};
  const Plan plan = plan_of(sizes, "powersgd", rows);
  ASSERT_EQ(plan.parts.size(), 4U);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(cols_of(plan.parts[k].spec), 30U);
    EXPECT_EQ(plan.parts[k].first % 30, 0U) << "a part begins at a row";
  }
  EXPECT_EQ(cols_of(plan.parts[3].spec), 640U);
  for (const Part& p : plan_of(sizes, "powersgd").parts)
    EXPECT_EQ(cols_of(p.spec), 0U) << "the row length is unknown";
}

TEST(Plan, small) {
  const std::size_t sizes[] = {2000, 10, 0, 99, 300, 50, 50};
  const Plan plan = plan_of(sizes, "topk:ratio=0.1");
  std::vector<std::pair<std::size_t, std::string_view>> parts;
  for (const Part& p : plan.parts) parts.emplace_back(p.n, p.spec.codec->name);
  EXPECT_EQ(parts, (std::vector<std::pair<std::size_t, std::string_view>>{
                       {1000, "topk"}, {1000, "topk"}, {300, "topk"}, {209, "fp32"}}));
  EXPECT_EQ(plan.order, (std::vector<std::size_t>{0, 4, 1, 2, 3, 5, 6}));
}

Choices with_rules(std::string_view json) {
  return *Choices::make(*parse_rules(json), choices("fp8").defaults());
}

std::vector<std::string> lines(std::span<const PlanTensor> bucket, std::string_view json) {
  std::vector<std::string> out;
  for (const Part& p : make_plan(bucket, with_rules(json)).parts)
    out.push_back(std::to_string(p.n) + " " + to_string(p.spec) + " " + std::string(p.strategy->name) + ": " +
                  p.why);
  return out;
}

TEST(Plan, ordered) {
  const PlanTensor bucket[] = {{"a", 200}, {"b.bias", 10}, {"c", 300}, {"d.bias", 20}, {"e", 400}};
  const Plan plan =
      make_plan(bucket, with_rules(R"({"c": {"priority": 1}, "e": {"priority": -1, "codec": "bf16"}})"));
  EXPECT_EQ(plan.order, (std::vector<std::size_t>{2, 0, 1, 3, 4}));
}

TEST(Plan, grouped) {
  const PlanTensor bucket[] = {{"a.w", 200}, {"b.w", 500},  {"norm", 10},
                               {"c.w", 400}, {"d.w", 1500}, {"e.w", 90}};
  EXPECT_EQ(
      lines(bucket, R"({"*.w": {"codec": "onebit", "group": "w"}})"),
      (std::vector<std::string>{"750 onebit server: rule 1 ('*.w'), piece 1 of 2",
                                "750 onebit server: rule 1 ('*.w'), piece 2 of 2",
                                "700 onebit server: rule 1 ('*.w')", "490 onebit server: rule 1 ('*.w')",
                                "10 fp32 server: tensors below 100 values are sent uncompressed"}));
}

TEST(Plan, hosts) {
  const std::size_t sizes[] = {5000, 3};
  const auto on = [&](const char* hosts) {
    ChoiceDefaults defaults{.spec = *parse_spec("onebit"), .strategy = find_strategy("hosts"), .world = 4};
    defaults.hosts = *Hosts::parse(hosts, 4);
    return plan_of(sizes, Choices::of(defaults));
  };
  const Part own = on("4x1").parts[0], shared = on("2x2").parts[0], one = on("1x4").parts[0];
  EXPECT_EQ(own.strategy, find_strategy("server"));
  EXPECT_EQ(to_string(own.spec), "onebit");
  EXPECT_FALSE(own.inside);
  EXPECT_EQ(shared.strategy, find_strategy("hosts"));
  EXPECT_EQ(to_string(shared.spec), "onebit");
  EXPECT_EQ(to_string(*shared.inside), "fp32");
  EXPECT_EQ(one.strategy, find_strategy("server"));
  EXPECT_EQ(to_string(one.spec), "fp32");
  EXPECT_FALSE(one.inside);
  EXPECT_NE(on("2x2").hash(4, *Hosts::parse("2x2", 4)), on("2x2").hash(4, *Hosts::parse("3+1", 4)));
}

TEST(Plan, uncompressed_small_tensors_share_parts_with_the_others) {
  const PlanTensor bucket[] = {{"a.bias", 20}, {"b", 30}, {"c.bias", 120}, {"d.bias", 40}};
  EXPECT_EQ(lines(bucket, R"({"*.bias": "fp32"})"),
            (std::vector<std::string>{"120 fp32 server: rule 1 ('*.bias')",
                                      "90 fp32 server: tensors below 100 values are sent uncompressed"}));
  EXPECT_EQ(lines(bucket, R"({"*.bias": {"codec": "fp32", "strategy": "ring"}})").size(), 4U)
      << "a rule with a strategy keeps its tensors separate";
}

TEST(Plan, EqualInputsGiveEqualPlans) {
  const std::size_t sizes[] = {5000, 10};
  const Plan a = plan_of(sizes, "topk"), b = plan_of(sizes, "topk");
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(4), b.hash(4));
  EXPECT_NE(a.hash(4), a.hash(3));
  EXPECT_NE(a.hash(4), plan_of(sizes, "topk:ratio=0.02").hash(4));
}

// A default part has a payload of about 1 MiB. If it is one chunk, as with gather, it has at most 2^20 values,
// because its first byte leaves when the whole part is encoded. Chunks have at least 64 KiB, and parts at most 2^22
// values. A configured size stays unchanged.
TEST(Plan, DefaultPartsAreSmallerForLargePayloads) {
  const auto parts = [](std::string_view strategy, int world, std::size_t part_values,
                        std::string_view codec = "fp8") {
    const PlanTensor bucket[] = {{.key = "t", .n = 6'000'000}};
    return make_plan(bucket, Choices::of({.spec = *parse_spec(codec),
                                          .strategy = find_strategy(strategy),
                                          .part_values = part_values,
                                          .world = world}))
        .parts.size();
  };
  EXPECT_EQ(parts("gather", 4, kDefaultPartValues), 6U);
  EXPECT_EQ(parts("aggregator", 4, kDefaultPartValues), 6U);
  for (const char* strategy : {"server", "ring"}) {
    EXPECT_EQ(parts(strategy, 4, kDefaultPartValues, "fp32"), 23U);
    EXPECT_EQ(parts(strategy, 4, kDefaultPartValues, "bf16"), 12U);
    EXPECT_EQ(parts(strategy, 64, kDefaultPartValues, "fp32"), 6U);
    EXPECT_EQ(parts(strategy, 1000, kDefaultPartValues, "fp32"), 2U);
    EXPECT_EQ(parts(strategy, 4, kDefaultPartValues, "topk:ratio=0.01"), 2U);
    EXPECT_EQ(parts(strategy, 4, kDefaultPartValues, "onebit"), 2U);
    EXPECT_EQ(parts(strategy, 4, 3'000'000, "fp32"), 2U);
  }
  EXPECT_EQ(parts("gather", 4, 3'000'000), 2U);
}

// Parts are not cut by part_values. Without bounds, the ranges are those of equal_bounds().
TEST(Plan, sharded_tensors_have_own_parts_and_chunks_equal_the_owners_ranges) {
  const std::size_t given[] = {0, 3, 3, 2'000'000};
  const PlanTensor bucket[] = {{.key = "a", .n = 2'000'000, .bounds = given},
                               {.key = "b", .n = 10, .bounds = {}}};
  const Choices all = Choices::of({.spec = *parse_spec("fp8"), .part_values = 1000, .world = 3});
  for (const RoundKind kind : {RoundKind::kReduceScatter, RoundKind::kAllGather}) {
    const std::vector<std::size_t> equal = equal_bounds(10, 0, 3);
    const PlanTensor with[] = {bucket[0], {.key = "b", .n = 10, .bounds = equal}};
    const Plan plan = make_plan(with, all, kind);
    ASSERT_EQ(plan.parts.size(), 2U);
    for (std::size_t k = 0; k < 2; ++k) {
      const std::size_t tensor = plan.order[k];
      EXPECT_EQ(plan.parts[k].n, with[tensor].n);
      EXPECT_EQ(plan.parts[k].starts,
                std::vector<std::size_t>(with[tensor].bounds.begin(), with[tensor].bounds.end()));
    }
  }
}

}  // namespace
}  // namespace tithe
