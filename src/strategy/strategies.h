// SPDX-License-Identifier: Apache-2.0
#pragma once
// One declaration per line of strategies.def; strategies.cc turns them into the table.
#include "tithe/graph.h"

namespace tithe {
#define TITHE_STRATEGY(name) extern const Strategy name##_strategy;
#include "tithe/strategies.def"
#undef TITHE_STRATEGY
}  // namespace tithe
