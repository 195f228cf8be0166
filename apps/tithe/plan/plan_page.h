// SPDX-License-Identifier: Apache-2.0
#pragma once
// A plan's step as a picture: computing, the lanes and the messages of rank 0 over time, beside the step of the
// best bf16. One page, that needs nothing else.
#include <string>

#include "advice/planner/planner.h"

namespace tithe::cli {

// `title`: the model and the cluster. `why`: text that follows the pictures; may be empty.
Result<std::string> plan_page(const std::string& title, const planner::PlanQuery& query,
                              const planner::Planned& planned, const std::string& why);

}  // namespace tithe::cli
