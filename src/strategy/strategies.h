// SPDX-License-Identifier: Apache-2.0
#pragma once
// One declaration per line of strategies.def; strategies.cc turns them into the table.
#include <algorithm>

#include "tithe/seam/graph.h"

namespace tithe {

// The maximum of f(ranks of a host) over all hosts.
template <typename F>
double busiest_host(const Place& p, F f) {
  double most = 0;
  if (p.hosts == nullptr || p.hosts->alone()) {
    std::vector<Rank> one(1);
    for (one[0] = 0; one[0] < p.world; ++one[0]) most = std::max(most, f(one));
    return most;
  }
  for (const std::vector<Rank>& ranks : p.ranks_by_host()) most = std::max(most, f(ranks));
  return most;
}

// The number of ranks outside of the host with these ranks.
inline double elsewhere(const Place& p, const std::vector<Rank>& ranks) {
  return static_cast<double>(p.world) - static_cast<double>(ranks.size());
}
inline int max_remote_ranks(const Place& p) {
  return static_cast<int>(busiest_host(p, [&](const auto& ranks) { return elsewhere(p, ranks); }));
}

#define TITHE_STRATEGY(name) extern const Strategy name##_strategy;
#include "tithe/strategies.def"
#undef TITHE_STRATEGY
}  // namespace tithe
