// SPDX-License-Identifier: Apache-2.0
#pragma once
// A picture of rank 0's step: when each bucket is computed, encoded, transferred and merged.
#include <string>

#include "advisor/planner/planner.h"

namespace tithe::cli {

// `outcome` must have events. `longest`: the minimum end of the time axis, so that pictures have the same scale.
std::string timeline_svg(const planner::PlanQuery& query, const sim::Outcome& outcome, sim::Seconds longest);

// The kinds of rows, with their colours.
std::string timeline_legend();

// Table rows: each bucket's tensors, and when rank 0 has its gradients and its result.
std::string bucket_table(const planner::PlanQuery& query, const sim::Outcome& outcome);

}  // namespace tithe::cli
