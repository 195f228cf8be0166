// SPDX-License-Identifier: Apache-2.0
// hosts: ranks of one host add their values there; the sums are exchanged between hosts by `server`; the results are
// forwarded inside.
//
// H hosts; the largest has L ranks, and the part has L shares. A rank on a host of l ranks is the carrier of its shares
// (about L/l of them): only the carrier sends them to other hosts.
//
//   chunks           L H
//   steps            4: inside, to the server, from it, inside (2 with one host; like server if no host is shared)
//   frames per rank  (L-1) H inside, 2(H-1) between hosts, (L-1) H results; L H encoded, each chunk once: inside, or
//                    between hosts by its carrier
//   bytes per rank   between hosts 2(H-1)/H / L of one payload, so 2(H-1)/H per host, where `server` has L times as
//                    much; under concat (H-1)(H+1)/H / L. Inside (L-1)/L of a payload of the codec inside, and (L-1)/L
//                    of a payload of the codec between hosts, under concat H times that
//   needs            in-order channels within hosts, and between the carriers of each share
//
// The other ranks of a host receive the same bytes that were sent between hosts. So all ranks decode the same frames,
// and no value is encoded, or rounded, a third time. This is the two-level reduction of the baselines of Espresso and
// HiPress; the loss of each codec is in the residual of the encoding rank.
#include "strategy/between.h"
#include "strategy/strategies.h"

namespace tithe {
namespace {

Graph draw(const Place& p) { return draw_hosts(p, server_strategy); }
int chunks(const Place& p) { return chunks_of_hosts(p, server_strategy); }
StrategyCost cost(const Place& p) { return cost_of_hosts(p, server_strategy); }

}  // namespace

const Strategy hosts_strategy = {.name = "hosts",
                                 .doc = "sums inside each host, server between hosts",
                                 .draw = draw,
                                 .chunks = chunks,
                                 .cost = cost,
                                 .laws = kSumsFirst,
                                 .between = &server_strategy};

}  // namespace tithe
