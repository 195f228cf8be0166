// SPDX-License-Identifier: Apache-2.0
#include "advisor/measure/truth_band.h"

#include <gtest/gtest.h>

#include <vector>

namespace tithe::bench {
namespace {

TEST(TruthBand, ContainsTheMiddleEightyPercent) {
  std::vector<TruthCase> cases;
  for (int k = 0; k <= 10; ++k) cases.push_back({90.0 + 2 * k, 100});  // 0.90 to 1.10 times the prediction
  const TruthBand band = truth_band(cases);
  EXPECT_DOUBLE_EQ(band.low, 0.92);
  EXPECT_DOUBLE_EQ(band.high, 1.08);
  EXPECT_EQ(band.cases, 11U);
  EXPECT_EQ(truth_band({}).cases, 0U);
}

TEST(TruthBand, HasTheMeasuredCases) {
  EXPECT_GE(truth_cases().size(), 20U);
  for (const TruthCase& c : truth_cases()) {
    EXPECT_GT(c.measured, 0);
    EXPECT_GT(c.predicted, 0);
  }
}

}  // namespace
}  // namespace tithe::bench
