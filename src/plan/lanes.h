// SPDX-License-Identifier: Apache-2.0
#pragma once
// The default number of compute lanes of a rank: its share of the cores, minus one core for its program.
#include <algorithm>

namespace tithe {

inline constexpr int kMaxDefaultLanes = 8;

// `ranks` ranks share `cores` cores.
constexpr int default_lanes(int cores, int ranks) {
  return std::clamp(cores / std::max(1, ranks) - 1, 1, kMaxDefaultLanes);
}

}  // namespace tithe
