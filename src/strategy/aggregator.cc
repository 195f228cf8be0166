// SPDX-License-Identifier: Apache-2.0
// aggregator: all workers send to rank 0, which sums and sends the result. The baseline for ring and server.
//
//   chunks           1
//   steps            2 (0 when alone)
//   frames           a worker sends 1; rank 0 sends N-1; each rank encodes 1 and stores 1; rank 0 merges N-1
//                    in one pass
//   bytes            a worker sends 1 payload, rank 0 sends N-1; under concat N(N-1), since the sum carries
//                    its parts
//   needs            in-order channels between rank 0 and the others
//   world 1          encodes and stores, so that rounding and feedback are the same as in larger worlds
//
// Rank 0 is a worker too. Its link carries all traffic, so the time grows with N, unlike the ring's.
#include "strategy/strategies.h"

namespace tithe {
namespace {

constexpr Rank kAggregator = 0;

Graph draw(const Place& p) {
  Graph g(1);
  if (p.me != kAggregator) {
    g.send(kAggregator, g.encode(0));
    g.store(0, g.recv(kAggregator, 0));
    return g;
  }
  std::vector<Graph::Frame> pushed;
  for (Rank worker = 1; worker < p.world; ++worker) pushed.push_back(g.recv(worker, 0));
  g.merge(0, pushed);
  const Graph::Frame sum = g.encode(0);
  for (Rank worker = 1; worker < p.world; ++worker) g.send(worker, sum);
  g.store(0, sum);
  return g;
}

StrategyCost cost(const Place& p) {
  const int workers = p.world - 1;
  const auto crossing = [&](int answer) {
    return busiest_host(p, [&](const std::vector<Rank>& ranks) {
      return ranks[0] == kAggregator ? answer * elsewhere(p, ranks) : static_cast<double>(ranks.size());
    });
  };
  return {.steps = p.world > 1 ? 2 : 0,
          .frames_sent = workers,
          .encodes = 1,
          .wire_shares = 1.0 * workers,
          .concat_shares = 1.0 * workers * p.world,
          .link_shares = crossing(1),
          .concat_link_shares = crossing(p.world),
          .senders = static_cast<int>(elsewhere(p, p.ranks_by_host()[0])),
          .roundings = 2};
}

}  // namespace

const Strategy aggregator_strategy = {.name = "aggregator",
                                      .doc = "rank 0 sums for all ranks (the worker-aggregator baseline)",
                                      .draw = draw,
                                      .chunks = one_chunk,
                                      .cost = cost,
                                      .laws = kSumsFirst,
                                      .by_rank = true};

}  // namespace tithe
