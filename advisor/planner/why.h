// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reasons for a plan: the resource that bounds its step, and the step with another choice for some of its tensors.
//
//   - Each alternative is the plan with one change, simulated to the end of the step.
//   - One row covers a class of similar tensors: same choice, about the same size, same allowed codecs.
//   - The number of simulated alternatives is limited to some seconds of work, for the rows with the most values. It
//     follows from the number of program steps and never from a clock.
#include <string>
#include <vector>

#include "advisor/planner/planner.h"

namespace tithe::planner {

// The bottleneck of the step, and the step with more of each resource.
struct Bounds {
  // "compute", "uplink", "downlink", "latency", "links inside hosts", "the lanes" or "the engine"
  std::string by;
  Seconds step = 0;
  Seconds twice_bandwidth = 0, half_latency = 0, twice_cores = 0, no_communication = 0;
};
Result<Bounds> bounds_of(const PlanQuery& query, const Planned& planned);

struct Alternative {
  std::string option;  // "bf16@ring", "bf16 in a group"
  Assignment assignment;
  Seconds step = 0;  // kNever: more than twice as long as the plan
};
struct Reason {
  std::vector<std::size_t> tensors;       // indices of tensors
  std::string choice;                     // the plan's choice for them
  std::vector<Alternative> alternatives;  // shortest step first
};
struct Reasons {
  std::vector<Reason> rows;  // most values first
  std::size_t left_out = 0;  // tensors of rows without simulated alternatives
};
Result<Reasons> reasons_of(const PlanQuery& query, const Planned& planned);

}  // namespace tithe::planner
