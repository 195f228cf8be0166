// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many compute lanes a rank has that was not told: as many as its share of the cores, without the one that its
// program keeps busy.
#include <algorithm>

namespace tithe {

inline constexpr int kMostUsualLanes = 8;

// `ranks` share `cores`.
constexpr int usual_lanes(int cores, int ranks) {
  return std::clamp(cores / std::max(1, ranks) - 1, 1, kMostUsualLanes);
}

}  // namespace tithe
