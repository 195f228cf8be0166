// SPDX-License-Identifier: Apache-2.0
// gather: every rank sends its frame to all others, and combines all N frames in one pass.
//
//   chunks           1
//   steps            1 (0 when alone)
//   frames per rank  N-1 sent, 1 encoded, N stored in one pass
//   bytes per rank   N-1 payloads, also under concat
//   needs            channels between all pairs
//   world 1          encodes and stores, so that rounding and feedback are the same as in larger worlds
//
// Each value is rounded once, at its source, and the pass is in the order of ranks, so all ranks get the same bits.
// Best for small payloads: few ranks, or sparse codecs, whose sum would be larger than each summand. So the laws
// decode and concat come before sum.
#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw(const Place& p) {
  Graph g(1);
  const Graph::Frame own = g.encode(0);
  for (int i = 1; i < p.world; ++i) g.send(p.wrap(p.me + i), own);

  std::vector<Graph::Frame> all;
  for (Rank rank = 0; rank < p.world; ++rank) all.push_back(rank == p.me ? own : g.recv(rank, 0));
  g.store(0, all);
  return g;
}

StrategyCost cost(const Place& p) {
  const int others = p.world - 1;
  const double crossing = busiest_host(p, [&](const std::vector<Rank>& ranks) {
    return static_cast<double>(ranks.size()) * elsewhere(p, ranks);
  });
  return {.steps = p.world > 1 ? 1 : 0,
          .frames_sent = others,
          .encodes = 1,
          .wire_shares = 1.0 * others,
          .concat_shares = 1.0 * others,
          .link_shares = crossing,
          .concat_link_shares = crossing,
          .senders = max_remote_ranks(p)};
}

}  // namespace

const Strategy gather_strategy = {.name = "gather",
                                  .doc = "every frame to every rank, one combining pass",
                                  .draw = draw,
                                  .chunks = one_chunk,
                                  .cost = cost,
                                  .laws = kOnePassFirst,
                                  .by_rank = true};

}  // namespace tithe
