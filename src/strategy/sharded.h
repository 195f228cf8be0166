// SPDX-License-Identifier: Apache-2.0
#pragma once
// The strategies of sharded_hosts.cc, for the list in sharded.cc.
#include "tithe/seam/graph.h"

namespace tithe {

inline constexpr Law kInOnePass[] = {Law::kDecode, Law::kConcat, Law::kSum};

extern const Strategy hosts_scatter_strategy;
extern const Strategy hosts_gather_owned_strategy;

}  // namespace tithe
