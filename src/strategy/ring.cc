// SPDX-License-Identifier: Apache-2.0
// ring: each chunk goes round the ring once to be summed, and once more to distribute the sum.
//
//   chunks           N
//   steps            2(N-1)
//   frames per rank  2(N-1) sent, N encoded, N-1 merged, N stored
//   bytes per rank   2(N-1)/N of one payload; under concat 3(N-1)/2, since a partial sum contains its summands
//   needs            in-order channels to the right neighbour and from the left
//   world 1          encodes and stores its only chunk, so that rounding and feedback are the same as in larger worlds
//
// Algorithm 1 of INCEPTIONN (Li et al., MICRO 2018), with corrected indices in the second phase: rank i ends the
// first phase with chunk i+1 summed, so the second phase begins there. The owner decodes its own frame like all other
// ranks; the paper does not require this, but all ranks must get the same bits.
#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw(const Place& p) {
  Graph g(p.world);
  sum_around(g, p, p.me);
  // Distribute. The owner encodes the sum once, and all ranks forward the same bytes.
  pass_chunks_around(g, p, p.wrap(p.me + 1));
  return g;
}

StrategyCost cost(const Place& p) {
  const int hops = p.world - 1;
  const double shares = 2.0 * hops / p.world, concat = 1.5 * hops;
  const double crossing =
      busiest_host(p, [&](const std::vector<Rank>& ranks) { return ring_crossings(p, ranks); });
  return {.steps = 2 * hops,
          .frames_sent = 2 * hops,
          .encodes = p.world,
          .wire_shares = shares,
          .concat_shares = concat,
          .link_shares = crossing * shares,
          .concat_link_shares = crossing * concat,
          .senders = crossing > 0 ? 1 : 0,
          .roundings = p.world};
}

}  // namespace

const Strategy ring_strategy = {
    .name = "ring",
    .doc = "each chunk passes once around the ring to be summed, once more to be shared",
    .draw = draw,
    .chunks = chunk_per_rank,
    .cost = cost,
    .laws = kSumsFirst};

}  // namespace tithe
