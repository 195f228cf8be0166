// SPDX-License-Identifier: Apache-2.0
#pragma once
// The planner: what to compress, with what, how cut, and why (docs/plan.md).
//
//   confirmed   what a search found, what stands beside it, what the other policies decide and the baselines are run in
//               the simulator; the shortest step of these is the plan. Of more than kMostConfirmed tensors the list
//               schedule is all there is, and the text says so
//   honest      a plan that compresses has to beat bf16 by kWorthIt, else bf16 is the plan and its text says so
//   same        the same question and policy give the same plan on every machine
//   whole       a plan is rules (tithe/choices.h): what a session takes, on all ranks
#include <optional>
#include <string>
#include <vector>

#include "planner/policies.h"

namespace tithe::planner {

inline constexpr double kWorthIt = 0.98;  // of the step with bf16: a plan above it is not worth what it loses

inline constexpr std::size_t kMostConfirmed = 2000;  // tensors

struct Candidate {
  std::string label;
  Assignment assignment;
  sim::Outcome outcome;  // as simulated; of an estimate step, exposed and bytes alone
  Seconds step() const { return outcome.step; }
};

struct Planned {
  std::string policy;
  std::vector<Rule> rules;
  Assignment assignment;
  sim::Outcome outcome;              // of a step under it
  std::vector<Candidate> looked_at;  // candidates that were simulated, this one among them
  Seconds bf16 = 0, raw = 0;         // steps of these baselines
  std::size_t judged = 0;            // assignments that the search judged
  bool estimated = false;            // there were too many tensors for the simulator
  std::string verdict;               // one line: what is gained, or that nothing is
};

Result<Planned> plan(const Question& question, std::string_view policy);

// What bounds the step, and what would help.
struct Bounds {
  std::string by;  // "compute", "uplink", "downlink", "latency", "the engine"
  Seconds step = 0;
  Seconds twice_bandwidth = 0, half_latency = 0, twice_cores = 0, no_communication = 0;
};
Result<Bounds> bounds_of(const Question& question, const Planned& planned);

// For one tensor: what the step would be if it alone had another option, the rest as planned. By the list schedule.
struct Alternative {
  std::string option;
  Seconds step = 0;
  bool taken = false;
};
struct Reason {
  std::size_t tensor = 0;
  std::vector<Alternative> alternatives;  // each option at the cut that suits it best, shortest step first
};
Result<std::vector<Reason>> reasons_of(const Question& question, const Planned& planned, std::size_t most);

}  // namespace tithe::planner
