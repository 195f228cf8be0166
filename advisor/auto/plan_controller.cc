// SPDX-License-Identifier: Apache-2.0
// The usual order of states is kMeasuring, kPlanning, kProposed, kTrying, kWatching. kPlanning leads straight to
// kWatching if there is no better plan; kTrying and kWatching lead back to kPlanning, or kTrying to kProposed to
// restore earlier rules. If the buckets change, the machine returns to kMeasuring, during planning after the answer.
#include "advisor/auto/plan_controller.h"

#include <algorithm>
#include <utility>

#include "base/quantile.h"

namespace tithe::automatic {

namespace {

Seconds median_from(const std::vector<Seconds>& steps, std::size_t first) {
  return median({steps.begin() + static_cast<std::ptrdiff_t>(first), steps.end()});
}

}  // namespace

void PlanController::measure() {
  state_ = State::kMeasuring;
  steps_.clear();
  tried_.clear();
  again_ = replanned_ = restores_previous_ = false;
}

void PlanController::watch(Seconds expected) {
  state_ = State::kWatching;
  expected_ = expected;
  steps_.clear();
}

void PlanController::resume(std::string rules, Seconds expected) {
  restart(std::move(rules));
  measured_ = expected;
  watch(expected);
}

void PlanController::restart(std::string rules) {
  measure();
  rules_ = std::move(rules);
  unstable_ = 0;
  expected_ = 0;
}

PlanController::Next PlanController::step(Seconds seconds, bool same) {
  if (state_ == State::kPlanning || state_ == State::kProposed) {
    again_ = again_ || !same;
    return Next::kNothing;
  }
  if (!same) measure();
  steps_.push_back(seconds);
  switch (state_) {
    case State::kMeasuring:
      if (steps_.size() < kFirst) return ++unstable_ == kMaxUnstable ? Next::kUnstable : Next::kNothing;
      unstable_ = 0;
      tried_[rules_] = measured_ = median_from(steps_, kSkip);
      state_ = State::kPlanning;
      return Next::kPlan;
    case State::kTrying:
      return steps_.size() < kTrial + kSkipAfterSwitch ? Next::kNothing : trial_over();
    default:
      return check_steps();
  }
}

// Evaluates the first steps under new rules.
PlanController::Next PlanController::trial_over() {
  measured_ = median_from(steps_, kSkipAfterSwitch);
  tried_[rules_] = measured_;
  if (restores_previous_) {  // the best earlier rules, restored
    restores_previous_ = false;
    watch(measured_);
    return Next::kNothing;
  }
  const auto best = std::min_element(tried_.begin(), tried_.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (measured_ > kWorse * best->second) {
    proposal_ = best->first;
    predicted_ = best->second;
    restores_previous_ = true;
    state_ = State::kProposed;
    return Next::kPropose;
  }
  const bool off = measured_ > (1 + kOff) * predicted_ || measured_ < predicted_ / (1 + kOff);
  if (off && !replanned_) {  // these steps say more about the links than earlier ones
    replanned_ = true;
    state_ = State::kPlanning;
    return Next::kPlan;
  }
  watch(measured_);
  return Next::kNothing;
}

PlanController::Next PlanController::check_steps() {
  if (steps_.size() > kLeave) steps_.erase(steps_.begin());
  const auto count = [&](const auto& is) {
    return static_cast<std::size_t>(std::count_if(steps_.begin(), steps_.end(), is));
  };
  const std::size_t above = count([&](Seconds s) { return s > (1 + kOff) * expected_; });
  const std::size_t below = count([&](Seconds s) { return s < expected_ / (1 + kOff); });
  constexpr std::size_t kEnough = kLeave - kLeave / 5;
  if (std::max(above, below) < kEnough) return Next::kNothing;
  measured_ = median_from(steps_, steps_.size() - kFirst);
  tried_.clear();
  tried_[rules_] = measured_;
  again_ = replanned_ = restores_previous_ = false;
  state_ = State::kPlanning;
  return Next::kPlan;
}

PlanController::Next PlanController::planned(std::string rules, Seconds predicted) {
  if (again_) {
    measure();
    return Next::kNothing;
  }
  const auto known = tried_.find(rules);
  if (known != tried_.end() && (rules == rules_ || known->second * kWorse > measured_)) {
    watch(measured_);
    return Next::kNothing;
  }
  proposal_ = std::move(rules);
  predicted_ = predicted;
  state_ = State::kProposed;
  return Next::kPropose;
}

void PlanController::failed() {
  if (again_)
    measure();
  else
    watch(measured_);
}

void PlanController::switched() {
  rules_ = proposal_;
  if (again_) {
    measure();
    return;
  }
  steps_.clear();
  state_ = State::kTrying;
}

void PlanController::refused() {
  restores_previous_ = false;
  failed();
}

}  // namespace tithe::automatic
