// SPDX-License-Identifier: Apache-2.0
// bf16: all values in 16 bits, with the strategy that has the best estimate. plan() also tries the best setting for all
// tensors (confirm.h).
#include "advisor/planner/policies.h"

namespace tithe::planner {
namespace {

Result<Assignment> decide(PlanSearch& search, std::string_view /*argument*/) {
  return search.best_uniform(half_spec());
}

}  // namespace

const Policy bf16_policy = {.name = "bf16", .argument = {}, .decide = decide};

}  // namespace tithe::planner
