// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decides when codec "auto" plans, and whether it keeps a plan: a state machine driven by step times. It measures,
// plans and sends nothing itself, so the same numbers give the same decisions everywhere.
//
//   - measure: the first steps run with the initial rules. Then the machine requests a plan.
//   - settle: the first steps under a plan are measured too. If a step takes longer than under an earlier set of rules,
//     the machine returns to the best one. Measurements override predictions.
//   - watch: the measured step becomes the expected one. If, of the last kLeave steps, at least four fifths deviate by
//     kOff to the same side, the machine requests a new plan and discards earlier results.
//   - ends: between two such changes each set of rules is tried at most once: slower rules are not taken again.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tithe::automatic {

using Seconds = double;

inline constexpr std::size_t kFirst = 20;  // steps measured before a plan
inline constexpr std::size_t kSkip = 5;  // of these, not counted: connections, first page faults, new buckets
inline constexpr std::size_t kTrial = 12;  // steps measured under a plan
// Of these, not counted: residuals of the old rules are sent.
inline constexpr std::size_t kSkipAfterSwitch = 2;
inline constexpr std::size_t kLeave = 50;
// Give up after this number of steps if kFirst equal steps in a row did not occur.
inline constexpr std::size_t kMaxUnstable = 200;
inline constexpr double kOff = 0.2;
inline constexpr double kWorse = 1.02;  // of a measured step: a longer step loses against it

class PlanController {
 public:
  enum class State : std::uint8_t { kMeasuring, kPlanning, kProposed, kTrying, kWatching };
  enum class Next : std::uint8_t {
    kNothing,
    kPlan,     // answer with planned() or failed(); measured() is the step to plan for
    kPropose,  // propose proposal(); answer with switched() or refused()
    kUnstable  // no kFirst equal steps in a row; returned once
  };

  explicit PlanController(std::string rules) : rules_(std::move(rules)) {}
  // Restores from a saved state: the current rules and the step under them.
  void resume(std::string rules, Seconds expected);
  // The same without a known step: measures again.
  void restart(std::string rules);

  // A step has ended. `same`: it submitted the same buckets as the previous one.
  Next step(Seconds seconds, bool same);
  // A plan: its rules and the predicted step.
  Next planned(std::string rules, Seconds predicted);
  void failed();  // there is no plan: the rules stay
  void switched();
  void refused();

  State state() const { return state_; }
  const std::string& rules() const { return rules_; }        // in force
  const std::string& proposal() const { return proposal_; }  // to be proposed
  Seconds measured() const { return measured_; }             // the last measured step under rules()
  Seconds expected() const { return expected_; }             // 0: not known yet
  // True if proposal() was measured before and is to be restored.
  bool restores_previous() const { return restores_previous_; }

 private:
  void measure();
  void watch(Seconds expected);
  Next trial_over();
  Next check_steps();

  State state_ = State::kMeasuring;
  std::string rules_, proposal_;
  Seconds measured_ = 0, predicted_ = 0, expected_ = 0;
  std::vector<Seconds> steps_;            // of this state; in kWatching the last kLeave, oldest first
  std::map<std::string, Seconds> tried_;  // measured step by rules, since the last change of the environment
  std::size_t unstable_ = 0;              // steps in kMeasuring without a plan
  bool again_ = false;                    // the buckets changed while a plan was made, so the plan is useless
  bool replanned_ = false, restores_previous_ = false;
};

}  // namespace tithe::automatic
