// SPDX-License-Identifier: Apache-2.0
#pragma once
// The planner decides which tensors to compress, with which codec and strategy, in parts of which size, and gives
// reasons (docs/guide/plan.md).
//
//   - confirmed: the result of the search, its neighbours, the decisions of the other policies and the baselines are
//     run in the simulator; the shortest of these steps is the plan. For more than kMaxConfirmed tensors only the list
//     schedule decides, and the text states this.
//   - honest: a plan that compresses must be at least 5 % shorter than the best lossless plan. Otherwise the lossless
//     one is the plan, and the text begins with "do not compress".
//   - baselines: the plan is compared with common practice, the best single codec and strategy for all tensors
//     (confirm.h), by name.
//   - same: the same query and policy give the same plan on every machine.
//   - whole: a plan is a list of rules (tithe/choices.h), which a session takes on all ranks.
#include <string>
#include <vector>

#include "advisor/planner/confirm.h"

namespace tithe::planner {

// A change must shorten the step to this share of it.
inline constexpr double kWorthIt = 0.98;
// A plan that compresses must have at most this share of the best lossless step.
inline constexpr double kWorthLosing = 0.95;

struct Planned {
  std::string policy;
  std::vector<Rule> rules;
  Assignment assignment;
  sim::Outcome outcome;          // of a step under the plan
  Baseline fp32, bf16;           // the best of each
  Baseline single;               // the best codec and strategy that all tensors may use
  Seconds lossless = 0;          // the best step found with fp32, bf16 and zip alone
  Seconds compressed = 0;        // the best step found with a lossy codec; 0: there is none
  bool compresses = false;       // true if the plan uses a lossy codec
  std::vector<Candidate> bases;  // the candidates of the baselines
  std::size_t simulated = 0;     // simulated assignments, including the stopped ones
  std::size_t judged = 0;        // assignments that the search estimated
  bool estimated = false;        // there were too many tensors for the simulator
  std::string verdict;           // one line: the gain and its reference, or that there is none
  // The speedup by compression; 1 if the plan does not compress.
  double gain() const { return compresses ? lossless / outcome.step : 1.0; }
};

// The verdict of a complete plan, which was made for this query by this policy.
std::string verdict_of(const Planned& planned, const PlanQuery& query, std::string_view policy);

// `beside`: a plan for the same query, whose baselines are reused.
Result<Planned> plan(const PlanQuery& query, std::string_view policy, const Planned* beside = nullptr);

}  // namespace tithe::planner
