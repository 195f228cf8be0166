// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inputs of a plan, or of advice, for a running session.
#include "advice/auto/decide.h"
#include "engine/session/advisor.h"

namespace tithe::automatic {

// All but the step, the job and the costs.
AutoQuery make_auto_query(const engine::AdvisorContext& context, std::vector<Rule> rules,
                          std::vector<Allowance> allowed);

// The costs of these codecs here, at up to three sizes that the job's tensors reach. It takes some tenths of a second.
// All else is assumed: the links' rate makes up for what that gets wrong, since it is found with it (decide.h).
// gradients: of the job, which sizes and speeds depend on.
Result<sim::Costs> measured_costs(const planner::Job& job, std::span<const Spec> codecs,
                                  std::span<const float> gradients);

}  // namespace tithe::automatic
