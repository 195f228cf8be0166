// SPDX-License-Identifier: Apache-2.0
#pragma once
// Builds the input of a plan, or of advice, for a running session.
#include "advisor/auto/decide.h"
#include "engine/session/advisor.h"

namespace tithe::automatic {

// Fills in everything except the step, the job and the costs.
AutoQuery make_auto_query(const engine::AdvisorContext& context, std::vector<Rule> rules,
                          std::vector<Allowance> allowed);

// The costs of these codecs on this machine, at up to three sizes that occur among the job's tensors. Takes some tenths
// of a second. All other costs are assumed. Their errors are absorbed by the link rate, because the rate is fitted with
// these costs (decide.h). `gradients`: values of the job, on which the sizes and speeds of some codecs depend.
Result<sim::Costs> measured_costs(const planner::Job& job, std::span<const Spec> codecs,
                                  std::span<const float> gradients);

}  // namespace tithe::automatic
