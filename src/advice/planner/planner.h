// SPDX-License-Identifier: Apache-2.0
#pragma once
// The planner: what to compress, with what, how cut, and why (docs/guide/plan.md).
//
//   confirmed   what a search found, what stands beside it, what the other policies decide and the baselines are run in
//               the simulator; the shortest step of these is the plan. For more than kMostConfirmed tensors the
//               list schedule is all there is, and the text says so
//   honest      a plan that compresses has to be shorter by 5 % than what loses nothing, however that is sent: else
//               that is the plan, and its text begins with "do not compress"
//   baselines   what is compared with is what people run: one codec by one strategy for all tensors, the best there is
//               (confirm.h), by name
//   same        the same query and policy give the same plan on every machine
//   whole       a plan is rules (tithe/choices.h): what a session takes, on all ranks
#include <optional>
#include <string>
#include <vector>

#include "advice/planner/confirm.h"

namespace tithe::planner {

inline constexpr double kWorthIt = 0.98;  // of a step: what is not shorter is not worth a change
inline constexpr double kWorthLosing =
    0.95;  // of the best step that loses nothing: a plan above it is not worth that

struct Planned {
  std::string policy;
  std::vector<Rule> rules;
  Assignment assignment;
  sim::Outcome outcome;  // of a step under it
  Baseline fp32, bf16;   // the best of each
  Baseline single;       // the best codec and strategy for all tensors, of those that all of them may have
  Seconds lossless =
      0;  // the best step that was found without a loss that needs to be allowed: fp32, bf16 and zip
  Seconds compressed = 0;        // the best that was found with it; 0: there is none
  bool compresses = false;       // the plan does
  std::vector<Candidate> bases;  // these, as they were tried
  std::size_t simulated =
      0;  // assignments that were simulated, to the end or until they were longer than another
  std::size_t judged = 0;  // assignments that the search judged
  bool estimated = false;  // there were too many tensors for the simulator
  std::string verdict;     // one line: what is gained and of what, or that nothing is
  // How many times as fast compression makes the step; at most 1 where the plan does not compress.
  double gain() const { return compresses ? lossless / outcome.step : 1.0; }
};

// The plan's verdict as text. All its figures are there, and it was made for this query by this policy.
std::string verdict_of(const Planned& planned, const PlanQuery& query, std::string_view policy);

// `beside`: a plan for the same query, whose baselines this one then has too.
Result<Planned> plan(const PlanQuery& query, std::string_view policy, const Planned* beside = nullptr);

}  // namespace tithe::planner
