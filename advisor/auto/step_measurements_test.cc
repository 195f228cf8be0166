// SPDX-License-Identifier: Apache-2.0
#include "advisor/auto/step_measurements.h"

#include <gtest/gtest.h>

namespace tithe::automatic {
namespace {

constexpr std::int64_t kMs = 1'000'000;

// Rounds of 100 ms. Buckets are submitted 60 and 80 ms after the last commit, and 10 ms later in every fifth round.
void rounds(StepMeasurements& measurements, int n, std::int64_t& now) {
  const Tensor head{.key = "head", .n = 100, .row = 10}, bias{.key = "bias", .n = 10},
      body{.key = "body", .n = 500};
  const Tensor first[] = {head, bias};
  for (int k = 0; k < n; ++k) {
    const std::int64_t late = k % 5 == 4 ? 10 * kMs : 0;
    measurements.bucket_submitted(1, first, now + 60 * kMs + late);
    measurements.bucket_submitted(2, {&body, 1}, now + 80 * kMs + late);
    now += 100 * kMs;
    const StepMeasurements::Step step = measurements.step_over(now);
    EXPECT_DOUBLE_EQ(step.whole ? step.seconds : 0.1, 0.1);
  }
}

TEST(StepMeasurements, AreMediansOverEqualSteps) {
  StepMeasurements measurements;
  std::int64_t now = 5000 * kMs;
  rounds(measurements, 1, now);
  EXPECT_TRUE(measurements.job(1).tensors.empty()) << "the start of the first step is unknown";
  rounds(measurements, 30, now);
  const planner::Job job = measurements.job(2);
  EXPECT_EQ(job.lanes, 2);
  EXPECT_DOUBLE_EQ(job.compute, 0.08);
  ASSERT_EQ(job.tensors.size(), 3U);
  EXPECT_EQ(job.tensors[0].key, "head");
  EXPECT_EQ(job.tensors[0].row, 10U);
  EXPECT_EQ(job.tensors[1].row, 10U);
  EXPECT_DOUBLE_EQ(job.tensors[1].ready, 0.06);
  EXPECT_DOUBLE_EQ(job.tensors[2].ready, 0.08);
  EXPECT_EQ(job.bucket_ends, (std::vector<std::size_t>{2, 3}));
}

TEST(StepMeasurements, ChangedBucketsRestartTheMeasurement) {
  StepMeasurements measurements;
  std::int64_t now = 0;
  rounds(measurements, 10, now);
  const Tensor one{.key = "one", .n = 7};
  measurements.bucket_submitted(3, {&one, 1}, now + 10 * kMs);
  EXPECT_FALSE(measurements.step_over(now += 100 * kMs).same);
  measurements.bucket_submitted(3, {&one, 1}, now + 20 * kMs);
  EXPECT_TRUE(measurements.step_over(now += 100 * kMs).same);
  ASSERT_EQ(measurements.job(1).tensors.size(), 1U);
  measurements.reset();
  measurements.bucket_submitted(3, {&one, 1}, now + 50 * kMs);
  EXPECT_TRUE(measurements.step_over(now += 100 * kMs).same);
  EXPECT_DOUBLE_EQ(measurements.job(1).compute, 0.05);
}

}  // namespace
}  // namespace tithe::automatic
