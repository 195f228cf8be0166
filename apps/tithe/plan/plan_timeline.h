// SPDX-License-Identifier: Apache-2.0
#pragma once
// A step of rank 0 as a picture: what computes, encodes, travels and merges, when, and of which bucket.
#include <string>

#include "advice/planner/planner.h"

namespace tithe::cli {

// `outcome` has its events. `longest`: where the axis ends at the earliest, so that pictures have the same scale.
std::string timeline_svg(const planner::PlanQuery& query, const sim::Outcome& outcome, sim::Seconds longest);

// The kinds of rows, with their colours.
std::string timeline_legend();

// The rows of a table: each bucket's tensors, and when rank 0 has its gradients and its result.
std::string bucket_table(const planner::PlanQuery& query, const sim::Outcome& outcome);

}  // namespace tithe::cli
