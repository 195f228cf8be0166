// SPDX-License-Identifier: Apache-2.0
#pragma once
// Derives rules from measured step times. The link rate is the one at which the simulated step under the current rules
// equals the measured step; the planner then plans for links with this rate.
//
//   - effective: the rate includes kernel and engine time, not only the link.
//   - hidden: a step that takes no longer than its computation has nothing to gain. If the current rules are lossy, the
//     first rules are restored and the step is measured again.
//   - stays: lossless rules stay if their step is at most 2 % longer than that of any plan.
//   - same: the same numbers give the same decision on every machine.
#include <string>
#include <vector>

#include "advisor/auto/plan_controller.h"
#include "advisor/planner/planner.h"

namespace tithe::automatic {

struct AutoQuery {
  planner::Job job;         // compute time and ready times
  Seconds step = 0;         // measured
  std::vector<Rule> rules;  // the current rules
  // The current rules, followed by the session's default for tensors that match none.
  std::vector<Rule> in_full;
  std::vector<Rule> first;  // the rules at the start of the session; they lose no more than bf16
  std::vector<Allowance> allowed;
  sim::Costs costs;
  Hosts hosts;
  int world = 1;
  int cores = 1;            // of a host
  Seconds latency = 50e-6;  // of a link: assumed, since step times do not reveal it
};

struct AutoDecision {
  std::vector<Rule> rules;
  Seconds predicted = 0;        // the step under `rules`
  double bytes_per_second = 0;  // of a link; 0: communication is hidden, so the rate is unknown
  bool stays = false;           // the current rules stay
  std::string verdict = {};     // one line of text for the log
};

// kInvalid as in planner::plan(): an allowance that matches no tensor, or unknown costs.
Result<AutoDecision> decide(const AutoQuery& auto_query);

// The rate, in bytes per second, at which the simulated step under the current rules is as long as the measured step.
// 0: the measured step is as short as without a network, so communication is hidden.
Result<double> rate_of(const AutoQuery& auto_query);
// The planner's query for links with this rate.
inline constexpr double kFastest = 1e11;  // bytes per second: practically no network cost
Result<planner::PlanQuery> query_at(const AutoQuery& auto_query, double bytes_per_second);
std::string rate_text(double bytes_per_second);  // "93.1 Mbit/s"

// The session's hosts on one switch. If all ranks are on one machine, they share its cores; otherwise each host has its
// own.
Result<sim::Cluster> cluster_at(const AutoQuery& auto_query, double bytes_per_second);

// True if any rule uses a codec that loses more than bf16.
bool loses(std::span<const Rule> rules);

}  // namespace tithe::automatic
