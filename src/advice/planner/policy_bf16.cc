// SPDX-License-Identifier: Apache-2.0
// bf16: all values in 16 bits, by the strategy that the estimate says is best: plan() puts the best setting of all
// tensors beside it (confirm.h).
#include "advice/planner/policies.h"
#include "tithe/seam/catalogue.h"

namespace tithe::planner {
namespace {

Result<Assignment> decide(PlanSearch& search, std::string_view /*argument*/) {
  return search.best_uniform(*parse_spec("bf16"));
}

}  // namespace

const Policy bf16_policy = {.name = "bf16",
                            .doc = "all tensors as bf16, by the best strategy: the baseline",
                            .argument = {},
                            .decide = decide};

}  // namespace tithe::planner
