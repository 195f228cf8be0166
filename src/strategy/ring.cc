// SPDX-License-Identifier: Apache-2.0
// ring: pass each chunk once round to sum it, once more to share the sum.
//
//   chunks           N
//   steps            2(N-1)
//   frames per rank  2(N-1) sent, N encoded, N-1 merged, N stored
//   bytes per rank   2(N-1)/N of one payload; under concat 3(N-1)/2, since a partial sum carries its parts
//   needs            in-order channels to the right neighbour and from the left
//   world 1          encodes and stores its only chunk, so that rounding and feedback are those of any world
//
// Algorithm 1 of INCEPTIONN (Li et al., MICRO 2018) with its second leg's indices put right: rank i ends the
// first leg with chunk i+1 summed, so the share starts there. The owner decodes its own frame like
// everybody else: the paper does not say so, and identity needs it.
#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw(const Place& p) {
  Graph g(p.world);

  // Sum. After step s this rank's copy of chunk me-s-1 holds the values of s+2 ranks.
  for (int s = 0; s < p.world - 1; ++s) {
    g.send(p.right(), g.encode(p.wrap(p.me - s)));
    const Chunk c = p.wrap(p.me - s - 1);
    g.merge(c, g.recv(p.left(), c));
  }

  // Share. The sum is encoded once, by its owner, and forwarded as the same bytes.
  Chunk c = p.wrap(p.me + 1);
  Graph::Frame f = g.encode(c);
  g.store(c, f);
  for (int s = 0; s < p.world - 1; ++s) {
    g.send(p.right(), f);
    c = p.wrap(p.me - s);
    f = g.recv(p.left(), c);
    g.store(c, f);
  }
  return g;
}

int chunks(const Place& p) { return p.world; }

StrategyCost cost(const Place& p) {
  const int hops = p.world - 1;
  const double shares = 2.0 * hops / p.world, concat = 1.5 * hops;
  const double leave = busiest_host(p, [&](const std::vector<Rank>& ranks) {
    return static_cast<double>(std::count_if(
        ranks.begin(), ranks.end(), [&](Rank r) { return p.host_of(p.wrap(r + 1)) != p.host_of(r); }));
  });
  return {.steps = 2 * hops,
          .frames_sent = 2 * hops,
          .encodes = p.world,
          .wire_shares = shares,
          .concat_shares = concat,
          .link_shares = leave * shares,
          .concat_link_shares = leave * concat,
          .senders = leave > 0 ? 1 : 0,
          .roundings = p.world};
}

constexpr Law kLaws[] = {Law::kSum, Law::kDecode, Law::kConcat, Law::kMax, Law::kLeader};

}  // namespace

const Strategy ring_strategy = {.name = "ring",
                                .doc = "each chunk once round to sum it, once more to share it",
                                .draw = draw,
                                .chunks = chunks,
                                .cost = cost,
                                .laws = kLaws};

}  // namespace tithe
