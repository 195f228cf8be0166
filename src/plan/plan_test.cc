// SPDX-License-Identifier: Apache-2.0
// The promises at the top of plan.h.
#include "tithe/plan.h"

#include <gtest/gtest.h>

namespace tithe {
namespace {

PlanRules rules(std::string_view codec) {
  return {.spec = *parse_spec(codec),
          .strategy = find_strategy("server"),
          .min_values = 100,
          .part_values = 1000};
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
    for (const Part& p : make_plan(sizes, rules("topk")).parts) {
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
  for (const auto& sizes : kBuckets)
    for (const Part& p : make_plan(sizes, rules("topk")).parts) {
      std::size_t first = 0;
      bool starts_a_tensor = false, in_a_large_one = false;
      for (const std::size_t n : sizes) {
        starts_a_tensor = starts_a_tensor || (n > 0 && p.first == first);
        in_a_large_one = in_a_large_one || (n > 1000 && p.first > first && p.first < first + n);
        first += n;
      }
      EXPECT_TRUE(starts_a_tensor || in_a_large_one) << p.first;
    }
}

TEST(Plan, shaped) {
  const std::size_t sizes[] = {3000, 640};
  const std::size_t rows[] = {30, 640};
  const Plan plan = make_plan(sizes, rules("powersgd"), rows);
  ASSERT_EQ(plan.parts.size(), 4U);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(cols_of(plan.parts[k].spec), 30U);
    EXPECT_EQ(plan.parts[k].first % 30, 0U) << "cut between rows";
  }
  EXPECT_EQ(cols_of(plan.parts[3].spec), 640U);
  for (const Part& p : make_plan(sizes, rules("powersgd")).parts)
    EXPECT_EQ(cols_of(p.spec), 0U) << "rows are not known";
}

TEST(Plan, small) {
  const std::size_t sizes[] = {2000, 10, 0, 99, 300, 50, 50};
  const Plan plan = make_plan(sizes, rules("topk:ratio=0.1"));
  std::vector<std::pair<std::size_t, std::string_view>> parts;
  for (const Part& p : plan.parts) parts.emplace_back(p.n, p.spec.codec->name);
  EXPECT_EQ(parts, (std::vector<std::pair<std::size_t, std::string_view>>{
                       {1000, "topk"}, {1000, "topk"}, {109, "fp32"}, {300, "topk"}, {100, "fp32"}}));
}

TEST(Plan, IsTheSameValueWhereItIsMadeFromTheSame) {
  const std::size_t sizes[] = {5000, 10};
  const Plan a = make_plan(sizes, rules("topk")), b = make_plan(sizes, rules("topk"));
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(4), b.hash(4));
  EXPECT_NE(a.hash(4), a.hash(3));
  EXPECT_NE(a.hash(4), make_plan(sizes, rules("topk:ratio=0.02")).hash(4));
}

}  // namespace
}  // namespace tithe
