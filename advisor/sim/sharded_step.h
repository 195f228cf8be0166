// SPDX-License-Identifier: Apache-2.0
#pragma once
// The schedule of a step under FSDP2 (ZeRO-2 and ZeRO-3), given the durations of its rounds.
//
// A unit is a group of parameters that are gathered and reduced together: one module under fully_shard().
//
//   - one at a time: rounds run in the order in which FSDP2 issues them, and a round ends on all ranks together, as
//     rounds of a session do. So all ranks compute and wait at the same times.
//   - gather: issued when forward reaches the unit, which waits for it. A unit that does not keep its weights is
//     gathered again in backward.
//   - prefetch: in backward, each unit first issues the gather of the next one. In forward, each unit issues the
//     gathers of the next `forward_prefetch` units.
//   - reduce: issued when backward has all gradients of the unit. Backward first waits for the reduce-scatter of the
//     previous unit, as with set_reduce_scatter_max_input_buffers(1).
//   - end: the step ends with its last reduce-scatter.
#include <cstddef>
#include <vector>

#include "advisor/sim/flows.h"

namespace tithe::sim {

struct ShardedUnit {
  Seconds gather = 0;    // in forward
  Seconds regather = 0;  // in backward
  Seconds reduce = 0;
  bool keeps = false;  // keeps its weights from forward to backward
};

// Computation that belongs to one unit. A pass may compute with a unit several times, for example with the root.
struct UnitCompute {
  std::size_t unit = 0;
  Seconds seconds = 0;
};

struct ShardedStep {
  std::vector<ShardedUnit> units = {};
  std::vector<UnitCompute> forward = {}, backward = {};  // in the order of execution
  std::size_t forward_prefetch = 0;
};

Seconds duration_of(const ShardedStep& step);

}  // namespace tithe::sim
