// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs assignments in the simulator and keeps the shortest.
//
//   - stopped: a step that is longer than the best one so far is not simulated to its end; an assignment whose estimate
//     is far longer is not simulated at all.
//   - baseline: one codec with one strategy for all tensors, like `tithe simulate --codec C --strategy S`. For each
//     codec it is the best over all strategies, including the ring and the tree of a network library
//     (docs/guide/plan.md).
//   - same: the same calls give the same candidates on every machine.
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "advisor/planner/policies.h"

namespace tithe::planner {

inline constexpr std::size_t kMaxConfirmed = 2000;  // tensors
bool too_many(const PlanQuery& query);              // for the simulator

struct Candidate {
  std::string label;
  Assignment assignment;
  sim::Outcome outcome;  // from the simulator; of an estimate only step, exposed and bytes
  bool compresses = false, allowed = true;
  Seconds step() const { return outcome.step; }  // kNever: longer than another candidate
};

struct Baseline {
  std::string name;  // "bf16@hosts", "bf16@hosts with bf16 inside"
  Seconds step = 0;
  std::vector<Rule> rules;
  bool on_devices = false;  // a network library's, which leaves gradients on the devices
};

// The step under an assignment: simulated, or estimated if there are too many tensors.
Result<sim::Outcome> step_of(PlanSearch& search, const Assignment& assignment, Seconds limit = sim::kNever);

class Confirm {
 public:
  explicit Confirm(PlanSearch& search);

  // The index of the new candidate, or of the equal one that exists. `whole`: the step is simulated to its end.
  Result<std::size_t> add(std::string label, const Assignment& assignment, bool whole = false);
  const std::vector<Candidate>& seen() const { return seen_; }
  std::vector<Candidate>& seen() { return seen_; }
  // The shortest allowed candidate. Without `lossy_too`, only candidates that do not compress count.
  std::size_t shortest(bool lossy_too) const;

  // The best setting that uses one codec for all tensors, whether it is allowed or not; seen().size() if none is below
  // `limit`.
  Result<std::size_t> setting(const Spec& spec, Seconds limit = sim::kNever);
  Baseline baseline(std::size_t candidate) const;

  // Adds the decisions of the other policies, so that none of them has a shorter step than the plan.
  Status others();
  // Adds settings that are the same for all tensors except small ones: first the settings that are quick to simulate,
  // in the order of their estimates.
  Status uniform();
  // Local search: applies one change at a time, first to all of its tensors, then to each class of similar tensors, as
  // long as the step gets shorter by enough to justify further rules. Returns the last improvement.
  Result<std::size_t> neighbours(std::size_t of);
  // The variant that compresses less, if its step is as short; else `of`.
  Result<std::size_t> less(std::size_t of);

 private:
  Candidate candidate(std::string label, const Assignment& assignment) const;  // without its outcome
  using Change = std::function<void(std::size_t, Decision&)>;
  std::vector<std::pair<std::string, Change>> changes();
  void allot();  // sets the budget for the simulations that follow
  bool spent() const { return seen_.size() >= until_ || steps_ >= worth_; }
  Result<bool> better(std::size_t& of, std::string label, const Assignment& other);

  PlanSearch& search_;
  std::size_t max_simulated_, until_ = 0;
  std::size_t steps_ = 0, worth_ = 0;  // program steps: simulated so far, and the number at which to stop
  std::vector<Candidate> seen_;
  std::set<int> beaten_;  // options whose setting is longer than another one
  // Settings, and a time that is shorter than their step.
  std::vector<std::pair<Assignment, Seconds>> longer_;
};

}  // namespace tithe::planner
