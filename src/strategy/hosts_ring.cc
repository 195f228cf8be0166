// SPDX-License-Identifier: Apache-2.0
// hosts_ring: like hosts, with `ring` between hosts, as network libraries do on several hosts.
//
//   chunks           L H
//   steps            2(H-1) + 2: inside, twice round the hosts, inside (2 with one host; like ring if no host is
//   shared;
//                    2(H-1) + 1 where few hosts have several ranks)
//   frames per rank  (L-1) H inside, 2(H-1) between hosts, (L-1) H results; L H encoded
//   bytes per rank   between hosts 2(H-1)/H / L of one payload; under concat 3(H-1)/2 / L. Inside as hosts
//   needs            in-order channels within hosts, and between the carriers of each share
//
// Each host's link has one flow in and one flow out at a time. With `hosts` it has H-1, which can overflow short
// queues.
#include <algorithm>

#include "strategy/between.h"
#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw(const Place& p) { return draw_hosts(p, ring_strategy); }
int chunks(const Place& p) { return chunks_of_hosts(p, ring_strategy); }

// The longest chain begins inside a host of several ranks. It also ends inside a host if the host 2(H-1) places
// further on has several ranks.
StrategyCost cost(const Place& p) {
  StrategyCost out = cost_of_hosts(p, ring_strategy);
  const std::vector<std::vector<Rank>> hosts = p.ranks_by_host();
  const std::size_t n = hosts.size();
  int inside = 0;
  for (std::size_t h = 0; h < n; ++h)
    if (hosts[h].size() > 1) inside = std::max(inside, hosts[(h + 2 * (n - 1)) % n].size() > 1 ? 2 : 1);
  out.steps = 2 * (static_cast<int>(n) - 1) + inside;
  return out;
}

}  // namespace

const Strategy hosts_ring_strategy = {.name = "hosts_ring",
                                      .doc = "sums inside each host, ring between hosts",
                                      .draw = draw,
                                      .chunks = chunks,
                                      .cost = cost,
                                      .laws = kSumsFirst,
                                      .between = &ring_strategy};

}  // namespace tithe
