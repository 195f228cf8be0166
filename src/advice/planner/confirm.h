// SPDX-License-Identifier: Apache-2.0
#pragma once
// Assignments that are tried in the simulator, and which of them is shortest.
//
//   stopped    a step that is longer than the best before it is not followed to its end; one that the estimate says is
//              longer by far is not begun
//   baseline   one codec by one strategy for all tensors, as `tithe simulate --codec C --strategy S` has it: of each
//              codec the best over all strategies, ring and tree of a network library among them (docs/guide/plan.md)
//   same       the same calls give the same candidates on every machine
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "advice/planner/policies.h"

namespace tithe::planner {

inline constexpr std::size_t kMostConfirmed = 2000;  // tensors
bool too_many(const PlanQuery& query);               // for the simulator

struct Candidate {
  std::string label;
  Assignment assignment;
  sim::Outcome outcome;  // as simulated; of an estimate step, exposed and bytes alone
  bool compresses = false, allowed = true;
  Seconds step() const { return outcome.step; }  // kNever: longer than another one
};

struct Baseline {
  std::string name;  // "bf16@hosts", "bf16@hosts with bf16 inside"
  Seconds step = 0;
  std::vector<Rule> rules;
  bool on_devices = false;  // gradients stay there: a network library's
};

// A step under an assignment: simulated, or estimated where tensors are too many.
Result<sim::Outcome> step_of(PlanSearch& search, const Assignment& assignment, Seconds limit = sim::kNever);

class Confirm {
 public:
  explicit Confirm(PlanSearch& search);

  // The number of the candidate; of one that is there already, that one's. `whole`: it is followed to its end.
  Result<std::size_t> add(std::string label, const Assignment& assignment, bool whole = false);
  const std::vector<Candidate>& seen() const { return seen_; }
  std::vector<Candidate>& seen() { return seen_; }
  // The shortest of those that are allowed; `lossy_too`: else of those that do not compress.
  std::size_t shortest(bool lossy_too) const;

  // The best that one codec does for all tensors, however allowed it is; seen().size() where none is below `limit`.
  Result<std::size_t> setting(const Spec& spec, Seconds limit = sim::kNever);
  Baseline baseline(std::size_t candidate) const;

  // Adds what the other policies would do, so that none of them has the shorter step.
  Status others();
  // Settings that are the same for all but small tensors: those that are quick to simulate, the best of the estimate
  // first.
  Status uniform();
  // One change at a time, as long as that makes the step shorter by what is worth further rules: for all of its
  // tensors, then for those that are alike. The last one that did.
  Result<std::size_t> neighbours(std::size_t of);
  // The one that compresses less, if that takes as long.
  Result<std::size_t> less(std::size_t of);

 private:
  using Change = std::function<void(std::size_t, Decision&)>;
  std::vector<std::pair<std::string, Change>> changes();
  void allot();  // how much may be simulated from now on
  bool spent() const { return seen_.size() >= until_ || steps_ >= worth_; }
  Result<bool> better(std::size_t& of, std::string label, const Assignment& other);

  PlanSearch& search_;
  std::size_t most_, until_ = 0;
  std::size_t steps_ = 0, worth_ = 0;  // of programs: so far, and when it is enough
  std::vector<Candidate> seen_;
  std::set<int> beaten_;                                // options whose setting is longer than another one
  std::vector<std::pair<Assignment, Seconds>> longer_;  // settings, and what their steps are longer than
};

}  // namespace tithe::planner
