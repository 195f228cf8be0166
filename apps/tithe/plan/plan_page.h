// SPDX-License-Identifier: Apache-2.0
#pragma once
// A self-contained page with a plan's step: computation, lanes and messages of rank 0 over time, compared with the step
// of the best bf16.
#include <string>

#include "advisor/planner/planner.h"

namespace tithe::cli {

// `title`: the model and the cluster. `why`: text after the pictures; may be empty.
Result<std::string> plan_page(const std::string& title, const planner::PlanQuery& query,
                              const planner::Planned& planned, const std::string& why);

}  // namespace tithe::cli
