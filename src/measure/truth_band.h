// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far off predictions have been: of bench/results/truth.md, as the build found it.
#include <cstddef>
#include <span>

namespace tithe::bench {

struct TruthCase {
  double measured, predicted;  // ms
};
std::span<const TruthCase> truth_cases();  // made by src/measure/CMakeLists.txt, in the order of the table

// Between which multiples of its prediction a step was measured, in 8 of 10 of these cases.
struct TruthBand {
  double low = 1, high = 1;
  std::size_t cases = 0;  // 0: none, and no band
};
TruthBand truth_band(std::span<const TruthCase> cases);

}  // namespace tithe::bench
