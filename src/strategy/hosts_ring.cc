// SPDX-License-Identifier: Apache-2.0
// hosts_ring: as hosts, with `ring` between hosts: what a network library's ring is where it treats hosts apart.
//
//   chunks           L H
//   steps            2(H-1) + 2: inside, round the hosts twice, inside (2 with one host; as ring where none is shared)
//   frames per rank  (L-1) H inside, 2(H-1) between hosts, (L-1) H results; L H encoded
//   bytes per rank   between hosts 2(H-1)/H / L of one payload; under concat 3(H-1)/2 / L. Inside as hosts
//   needs            in-order channels within hosts, and between the carriers of each share
//
// Each host's link has one flow in and one flow out at a time, where `hosts` has H-1: what queues are too short for.
#include "strategy/between.h"
#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw(const Place& p) { return draw_hosts(p, ring_strategy); }
int chunks(const Place& p) { return chunks_of_hosts(p, ring_strategy); }
StrategyCost cost(const Place& p) { return cost_of_hosts(p, ring_strategy); }

constexpr Law kLaws[] = {Law::kSum, Law::kDecode, Law::kConcat, Law::kMax, Law::kLeader};

}  // namespace

const Strategy hosts_ring_strategy = {.name = "hosts_ring",
                                      .doc = "sums inside each host, ring between hosts",
                                      .draw = draw,
                                      .chunks = chunks,
                                      .cost = cost,
                                      .laws = kLaws,
                                      .between = &ring_strategy};

}  // namespace tithe
