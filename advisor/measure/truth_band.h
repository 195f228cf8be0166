// SPDX-License-Identifier: Apache-2.0
#pragma once
// The accuracy of predictions, from the measured cases of data/truth_cases.def.
#include <cstddef>
#include <span>

namespace tithe::bench {

struct TruthCase {
  double measured, predicted;  // ms
};
std::span<const TruthCase> truth_cases();

// The range of measured / predicted that contains 8 of 10 cases.
struct TruthBand {
  double low = 1, high = 1;
  std::size_t cases = 0;  // 0: there is no band
};
TruthBand truth_band(std::span<const TruthCase> cases);

}  // namespace tithe::bench
