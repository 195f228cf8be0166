// SPDX-License-Identifier: Apache-2.0
// The 10 % and 90 % quantiles of measured / predicted.
#include "advisor/measure/truth_band.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tithe::bench {

TruthBand truth_band(std::span<const TruthCase> cases) {
  if (cases.empty()) return {};
  std::vector<double> ratios;
  for (const TruthCase& c : cases) ratios.push_back(c.measured / c.predicted);
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double share) {
    return ratios[static_cast<std::size_t>(std::lround(share * static_cast<double>(ratios.size() - 1)))];
  };
  return {.low = at(0.1), .high = at(0.9), .cases = ratios.size()};
}

}  // namespace tithe::bench
