// SPDX-License-Identifier: Apache-2.0
// Strategies for reduce-scatters and all-gathers. Chunk c is the range of rank c; ranges differ in size and may be
// empty. The numbers below are for equal ranges.
//
// direct              reduce-scatter                           all-gather
//   steps             1 (0 when alone)                         1 (0 when alone)
//   frames per rank   N-1 sent, N encoded; the owner           N-1 sent, 1 encoded, N stored
//                     stores N in one pass
//   bytes per rank    (N-1)/N of one payload                   (N-1)/N of one payload
//   roundings         1                                        1
//
// ring
//   steps             N-1                                      N-1
//   frames per rank   N-1 sent, N encoded, N-1 merged          N-1 sent, 1 encoded, N stored
//   bytes per rank    (N-1)/N of one payload; under concat     (N-1)/N of one payload
//                     (N-1)/2
//   roundings         N                                        1
//
// The owner of a chunk stores the same frames as every rank of an all-reduce would, including its own. So a
// reduce-scatter has the same result as an all-reduce by `gather` in that range, and an all-gather has the same bits
// on all ranks, including the owner.
#include "strategy/sharded.h"

#include <algorithm>
#include <array>

#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph scatter_direct(const Place& p) {
  Graph g(p.world);
  for (int i = 1; i < p.world; ++i) {
    const Rank owner = p.wrap(p.me + i);
    g.send(owner, g.encode(owner));
  }
  std::vector<Graph::Frame> all;
  for (Rank r = 0; r < p.world; ++r) all.push_back(r == p.me ? g.encode(p.me) : g.recv(r, p.me));
  g.store(p.me, all);
  return g;
}

Graph gather_direct(const Place& p) {
  Graph g(p.world);
  share_chunks(g, p);
  return g;
}

// The last chunk that it sums is its own.
Graph scatter_ring(const Place& p) {
  Graph g(p.world);
  sum_around(g, p, p.me - 1);
  g.store(p.me, g.encode(p.me));
  return g;
}

Graph gather_ring(const Place& p) {
  Graph g(p.world);
  pass_chunks_around(g, p, p.me);
  return g;
}

double link_shares(const Place& p, bool ring) {
  return busiest_host(p,
                      [&](const std::vector<Rank>& ranks) {
                        if (!ring) return static_cast<double>(ranks.size()) * elsewhere(p, ranks);
                        return static_cast<double>(p.world - 1) * ring_crossings(p, ranks);
                      }) /
         p.world;
}

template <RoundKind kind, bool ring>
StrategyCost cost(const Place& p) {
  constexpr bool scatters = kind == RoundKind::kReduceScatter;
  const int others = p.world - 1;
  const double shares = 1.0 * others / p.world, crossing = link_shares(p, ring);
  const double joined = scatters && ring ? p.world / 2.0 : 1;  // average number of payloads in a frame
  return {.steps = ring          ? others
                   : p.world > 1 ? 1
                                 : 0,
          .frames_sent = others,
          .encodes = scatters ? p.world : 1,
          .wire_shares = shares,
          .concat_shares = shares * joined,
          .link_shares = crossing,
          .concat_link_shares = crossing * joined,
          .senders = ring ? (crossing > 0 ? 1 : 0) : max_remote_ranks(p),
          .roundings = scatters && ring ? p.world : 1};
}

constexpr Law kOnTheWay[] = {Law::kSum, Law::kDecode, Law::kConcat};

constexpr Strategy kDirect[] = {{.name = "direct",
                                 .doc = "every rank sends each owner its chunk",
                                 .draw = scatter_direct,
                                 .chunks = chunk_per_rank,
                                 .cost = cost<RoundKind::kReduceScatter, false>,
                                 .laws = kInOnePass,
                                 .by_rank = true,
                                 .kind = RoundKind::kReduceScatter},
                                {.name = "direct",
                                 .doc = "every owner sends its chunk to each rank",
                                 .draw = gather_direct,
                                 .chunks = chunk_per_rank,
                                 .cost = cost<RoundKind::kAllGather, false>,
                                 .laws = kInOnePass,
                                 .by_rank = true,
                                 .kind = RoundKind::kAllGather}};
constexpr Strategy kRing[] = {
    {.name = "ring",
     .doc = "each chunk passes around the ring to its owner, which receives the sum",
     .draw = scatter_ring,
     .chunks = chunk_per_rank,
     .cost = cost<RoundKind::kReduceScatter, true>,
     .laws = kOnTheWay,
     .kind = RoundKind::kReduceScatter,
     .sums_on_the_way = true},
    {.name = "ring",
     .doc = "each chunk passes around the ring from its owner",
     .draw = gather_ring,
     .chunks = chunk_per_rank,
     .cost = cost<RoundKind::kAllGather, true>,
     .laws = kInOnePass,
     .by_rank = true,
     .kind = RoundKind::kAllGather}};
constexpr const Strategy* kAll[] = {
    &kDirect[0], &kDirect[1], &kRing[0], &kRing[1], &hosts_scatter_strategy, &hosts_gather_owned_strategy};

}  // namespace

std::string_view name(RoundKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce", "reduce_scatter", "all_gather"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::span<const Strategy* const> sharded_strategies() { return kAll; }

const Strategy& sharded_strategy(RoundKind kind, const Strategy& strategy) {
  const std::string_view wanted = strategy.between != nullptr ? "hosts"
                                  : strategy.name == "ring"   ? "ring"
                                                              : "direct";
  return **std::ranges::find_if(kAll,
                                [&](const Strategy* s) { return s->kind == kind && s->name == wanted; });
}

}  // namespace tithe
