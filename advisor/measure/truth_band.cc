// SPDX-License-Identifier: Apache-2.0
// The 10 % and 90 % quantiles of measured / predicted.
#include "advisor/measure/truth_band.h"

#include <vector>

#include "base/quantile.h"

namespace tithe::bench {

std::span<const TruthCase> truth_cases() {
  static constexpr TruthCase kCases[] = {
#define TITHE_TRUTH_CASE(measured, predicted) {measured, predicted},
#include "data/truth_cases.def"
#undef TITHE_TRUTH_CASE
  };
  return kCases;
}

TruthBand truth_band(std::span<const TruthCase> cases) {
  if (cases.empty()) return {};
  std::vector<double> ratios;
  for (const TruthCase& c : cases) ratios.push_back(c.measured / c.predicted);
  return {.low = quantile(ratios, 0.1), .high = quantile(ratios, 0.9), .cases = ratios.size()};
}

}  // namespace tithe::bench
