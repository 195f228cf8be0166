// SPDX-License-Identifier: Apache-2.0
// The 10 % and 90 % quantiles of measured / predicted.
#include "advisor/measure/truth_band.h"

#include <vector>

#include "base/quantile.h"

namespace tithe::bench {

TruthBand truth_band(std::span<const TruthCase> cases) {
  if (cases.empty()) return {};
  std::vector<double> ratios;
  for (const TruthCase& c : cases) ratios.push_back(c.measured / c.predicted);
  return {.low = quantile(ratios, 0.1), .high = quantile(ratios, 0.9), .cases = ratios.size()};
}

}  // namespace tithe::bench
