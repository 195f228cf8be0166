// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common part of the strategies with separate exchanges inside and between hosts. Ranks of one host add their
// values there. One of them, the carrier, sends the sum to other hosts by a flat strategy, and forwards the result
// inside its host.
#include "tithe/seam/graph.h"

namespace tithe {

Graph draw_hosts(const Place& at, const Strategy& between);
int chunks_of_hosts(const Place& at, const Strategy& between);
StrategyCost cost_of_hosts(const Place& at, const Strategy& between);

}  // namespace tithe
