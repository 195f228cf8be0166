// SPDX-License-Identifier: Apache-2.0
// hosts_gather: like hosts, with `gather` between hosts: for sparse codecs, and few hosts.
//
//   chunks           L, the ranks of the largest host
//   steps            3: inside, between hosts, inside (2 if only one host is shared; like gather if none is)
//   frames per rank  L-1 inside, H-1 between hosts, (L-1) H results; L encoded
//   bytes per rank   between hosts (H-1)/L of one payload, also under concat; inside (L-1)/L of a payload of the codec
//                    inside, and H (L-1)/L of a payload of the codec between hosts
//   needs            in-order channels within hosts, and between the carriers of each share
#include <algorithm>

#include "strategy/between.h"
#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw(const Place& p) { return draw_hosts(p, gather_strategy); }
int chunks(const Place& p) { return chunks_of_hosts(p, gather_strategy); }

StrategyCost cost(const Place& p) {
  StrategyCost cost = cost_of_hosts(p, gather_strategy);
  // If only one host is shared, its sum has no second exchange inside a host on its path.
  const auto hosts = p.ranks_by_host();
  const auto shared = std::count_if(hosts.begin(), hosts.end(), [](const auto& h) { return h.size() > 1; });
  if (shared == 1) cost.steps = 2;
  return cost;
}

}  // namespace

const Strategy hosts_gather_strategy = {.name = "hosts_gather",
                                        .doc = "sums inside each host, gather between hosts",
                                        .draw = draw,
                                        .chunks = chunks,
                                        .cost = cost,
                                        .laws = kOnePassFirst,
                                        .between = &gather_strategy};

}  // namespace tithe
