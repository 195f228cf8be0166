// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common part of the strategies that treat hosts apart: ranks of one host add up there, one of them carries the sum
// to the other hosts by a flat strategy, and hands the result on.
#include "tithe/seam/graph.h"

namespace tithe {

Graph draw_hosts(const Place& at, const Strategy& between);
int chunks_of_hosts(const Place& at, const Strategy& between);
StrategyCost cost_of_hosts(const Place& at, const Strategy& between);

}  // namespace tithe
