// SPDX-License-Identifier: Apache-2.0
#pragma once
// From what steps took to rules: the links' rate is that at which the simulator's step under the rules in force is the
// one that was measured; the planner answers for links of that rate.
//
//   whole     the rate stands for all that makes a step longer than its computing: links, kernel, the engine
//   hidden    a step that lasts no longer than its computing has nothing to gain. Rules that lose something are taken
//             back then, and measured
//   stays     what loses nothing and is no more than 2 % slower than any plan stays
//   same      the same numbers have the same answer on every machine
#include <string>
#include <vector>

#include "advice/auto/watch.h"
#include "advice/planner/planner.h"

namespace tithe::automatic {

struct AutoQuery {
  planner::Job job;           // ready times, and computing
  Seconds step = 0;           // measured
  std::vector<Rule> rules;    // in force
  std::vector<Rule> in_full;  // the same, with what the session does where no rule takes a tensor
  std::vector<Rule> first;    // with which the session began; they lose no more than bf16
  std::vector<Allowance> allowed;
  sim::Costs costs;
  Hosts hosts;
  int world = 1;
  int cores = 1;            // of a host
  Seconds latency = 50e-6;  // of a link: assumed, no step tells it
};

struct AutoDecision {
  std::vector<Rule> rules;
  Seconds predicted = 0;        // a step under them
  double bytes_per_second = 0;  // of a link; 0: communication is hidden, and nobody knows
  bool stays = false;           // the rules in force
  std::string verdict = {};     // a line for people
};

// kInvalid as planner::plan() says it: an allowance that takes no tensor, costs that nobody knows.
Result<AutoDecision> decide(const AutoQuery& auto_query);

// The rate at which the simulator's step under the rules in force is as long as the one that was measured, in bytes per
// second; 0: none makes it so short, so communication is hidden.
Result<double> rate_of(const AutoQuery& auto_query);
// The query to the planner, for links of that rate.
inline constexpr double kFastest = 1e11;  // bytes per second: as if there were no network
Result<planner::PlanQuery> query_at(const AutoQuery& auto_query, double bytes_per_second);
std::string rate_text(double bytes_per_second);  // "93.1 Mbit/s"

// Hosts as they are, of one switch; ranks that are the only ones of their machine have its cores alone.
Result<sim::Cluster> cluster_at(const AutoQuery& auto_query, double bytes_per_second);

// True if any of the tensors loses more than bf16 does.
bool loses(std::span<const Rule> rules);

}  // namespace tithe::automatic
