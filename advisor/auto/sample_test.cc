// SPDX-License-Identifier: Apache-2.0
#include "advisor/auto/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "advisor/auto/auto_query.h"
#include "advisor/measure/gradients.h"
#include "codec/shared/floats/bf16_format.h"
#include "tithe/seam/catalogue.h"

namespace tithe::automatic {
namespace {

TEST(AutoSample, ContainsAShareOfEveryTensor) {
  std::vector<float> large(3 * Sample::kMaxValues), small(2 * Sample::kBlock + 5);
  std::iota(large.begin(), large.end(), 1.0F);
  std::iota(small.begin(), small.end(), -1e6F);
  const Tensor first[] = {{.key = "small", .data = small.data(), .n = small.size()}};
  const Tensor second[] = {{.key = "large", .data = large.data(), .n = large.size()}};
  Sample sample;
  for (int round = 0; round < 3; ++round) {
    sample.take(first);
    sample.take(second);
    sample.round_over();
    EXPECT_EQ(sample.values().empty(), round == 0);  // in the first round the total size is unknown
  }
  const std::vector<float> values = sample.values();
  ASSERT_GT(values.size(), Sample::kMaxValues * 9 / 10);
  ASSERT_LE(values.size(), Sample::kMaxValues);
  EXPECT_EQ(values.front(), -1e6F);
  EXPECT_EQ(values[Sample::kBlock], 1.0F);
  EXPECT_EQ(values.back(), static_cast<float>(values.size() - Sample::kBlock));
}

TEST(AutoSample, SkipsNonFiniteRoundsAndOtherTypes) {
  std::vector<float> x(100, 1.0F);
  std::vector<double> wide(100);
  const Tensor bucket[] = {{.key = "x", .data = x.data(), .n = x.size()},
                           {.key = "w", .data = wide.data(), .n = wide.size(), .dtype = DType::kBF16}};
  Sample sample;
  const auto round = [&](float last) {
    x.back() = last;
    sample.take(bucket);
    sample.round_over();
  };
  round(1);
  round(2);
  EXPECT_EQ(sample.values().size(), 100U);
  EXPECT_EQ(sample.values().back(), 2.0F);
  round(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(sample.values().back(), 2.0F);
  round(3);
  EXPECT_EQ(sample.values().back(), 3.0F);
}

// Gradients with bf16 values: zip reduces them to less than half of its result for typical ones, and the measured cost
// must show this.
TEST(AutoSample, SizesEqualTheJobs) {
  planner::Job job;
  job.tensors.push_back({"x", 1 << 16, 1 << 16, 0});
  const Spec zip[] = {*parse_spec("zip")};
  std::vector<float> own = sim::synthetic_gradients(1 << 16, 5);
  for (float& v : own) v = bf16::Format::unpack(bf16::Format::pack(v));
  const Result<sim::Costs> synthetic = measured_costs(job, zip, {}), mine = measured_costs(job, zip, own);
  ASSERT_TRUE(synthetic.ok() && mine.ok());
  EXPECT_GT(synthetic->codecs.at("zip").typical, 0.75);
  EXPECT_LT(mine->codecs.at("zip").typical, 0.45);
}

}  // namespace
}  // namespace tithe::automatic
