// SPDX-License-Identifier: Apache-2.0
#pragma once
// Why a plan is as it is: what bounds its step, and what the step would be with another choice for some of its tensors.
//
//   whole     an alternative is the plan with that one change, simulated to the end of its step
//   alike     tensors of the same choice, about the same size and with the same codecs to choose from are one row
//   bounded   so many alternatives are simulated as take a few seconds together, of the rows with most values; how many
//             follows from the steps of the plan's programs, never from a clock
#include <string>
#include <vector>

#include "advice/planner/planner.h"

namespace tithe::planner {

// The bottleneck of the step, and what would help.
struct Bounds {
  std::string
      by;  // "compute", "uplink", "downlink", "latency", "links inside hosts", "the lanes", "the engine"
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
  std::vector<std::size_t> tensors;       // by number
  std::string choice;                     // what the plan has for them
  std::vector<Alternative> alternatives;  // shortest step first
};
struct Reasons {
  std::vector<Reason> rows;  // most values first
  std::size_t left_out = 0;  // tensors of rows for which nothing was simulated
};
Result<Reasons> reasons_of(const PlanQuery& query, const Planned& planned);

}  // namespace tithe::planner
