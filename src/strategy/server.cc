// SPDX-License-Identifier: Apache-2.0
// server: co-located parameter servers; rank c sums chunk c for everybody.
//
//   chunks           N
//   steps            2 (0 when alone)
//   frames per rank  2(N-1) sent, N encoded, N-1 merged in one pass, N stored
//   bytes per rank   2(N-1)/N of one payload; under concat (N-1)(N+1)/N, since a sum carries its parts
//   needs            in-order channels between all pairs
//   world 1          encodes and stores its only chunk, so that rounding and feedback are those of any world
//
// Sums are merged in rank order, whoever comes first. Sends start with the right neighbour, so that at any
// moment the ranks talk to different servers.
#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw(const Place& p) {
  Graph g(p.world);

  for (int i = 1; i < p.world; ++i) {
    const Rank server = p.wrap(p.me + i);
    g.send(server, g.encode(server));
  }

  std::vector<Graph::Frame> pushed;
  for (Rank worker = 0; worker < p.world; ++worker)
    if (worker != p.me) pushed.push_back(g.recv(worker, p.me));
  g.merge(p.me, pushed);

  const Graph::Frame sum = g.encode(p.me);
  for (int i = 1; i < p.world; ++i) g.send(p.wrap(p.me + i), sum);
  g.store(p.me, sum);

  for (int i = 1; i < p.world; ++i) {
    const Rank server = p.wrap(p.me - i);  // in the order in which the servers reach this rank
    g.store(server, g.recv(server, server));
  }
  return g;
}

int chunks(int world) { return world; }

StrategyCost cost(int world) {
  const int others = world - 1;
  return {.steps = world > 1 ? 2 : 0,
          .frames_sent = 2 * others,
          .encodes = world,
          .wire_shares = 2.0 * others / world,
          .concat_shares = 1.0 * others * (world + 1) / world};
}

constexpr Law kLaws[] = {Law::kSum, Law::kDecode, Law::kConcat, Law::kMax, Law::kLeader};

}  // namespace

const Strategy server_strategy = {.name = "server",
                                  .doc = "one chunk per rank, which sums it for everybody",
                                  .draw = draw,
                                  .chunks = chunks,
                                  .cost = cost,
                                  .laws = kLaws};

}  // namespace tithe
