// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantiles of measurements, by nearest rank.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tithe {

// The value at `share` of the sorted values, 0 .. 1, rounded to the nearest index; 0 for an empty list.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = values.begin() + std::lround(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// The upper one of the two middle values if their number is even.
inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace tithe
