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

// The number of ranks in a list whose right neighbour is on another host.
inline double ring_crossings(const Place& p, const std::vector<Rank>& ranks) {
  return static_cast<double>(
      std::ranges::count_if(ranks, [&](Rank r) { return p.host_of(p.wrap(r + 1)) != p.host_of(r); }));
}

// Strategy::chunks
inline int one_chunk(const Place&) { return 1; }
inline int chunk_per_rank(const Place& p) { return p.world; }

// Strategy::laws of an all-reduce: sums on the way are preferred, or one combining pass at the end.
inline constexpr Law kSumsFirst[] = {Law::kSum, Law::kDecode, Law::kConcat, Law::kMax, Law::kLeader};
inline constexpr Law kOnePassFirst[] = {Law::kDecode, Law::kConcat, Law::kSum, Law::kMax, Law::kLeader};

// Steps of several strategies.
// Each rank sends its own chunk to all others and stores all chunks.
void share_chunks(Graph& g, const Place& p);
// The same along the ring. `first`: this rank's own chunk.
void pass_chunks_around(Graph& g, const Place& p, Chunk first);
// Sums along the ring. After step s, this rank's copy of chunk first-s-1 contains the values of s+2 ranks.
void sum_around(Graph& g, const Place& p, Chunk first);

#define TITHE_STRATEGY(name) extern const Strategy name##_strategy;
#include "tithe/strategies.def"
#undef TITHE_STRATEGY
}  // namespace tithe
