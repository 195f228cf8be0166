// SPDX-License-Identifier: Apache-2.0
#include "advisor/auto/plan_controller.h"

#include <gtest/gtest.h>

namespace tithe::automatic {
namespace {

using Next = PlanController::Next;
using State = PlanController::State;

// A job with a fixed step time per set of rules; one step in seven is slow. It answers the requests of PlanController
// like the engine and a planner.
struct Job {
  std::map<std::string, Seconds> steps;      // step time by rules
  std::map<std::string, Seconds> predicted;  // predicted step time by rules; default: the true one
  std::string plan = "plan";                 // the planner's answer
  PlanController controller{"raw"};
  int plans = 0, switches = 0;
  int number = 0;

  void step() {
    const Seconds took = steps.at(controller.rules()) * (++number % 7 == 0 ? 1.5 : 1.0);
    Next next = controller.step(took, true);
    if (next == Next::kPlan) {
      ++plans;
      const auto found = predicted.find(plan);
      next = controller.planned(plan, found != predicted.end() ? found->second : steps.at(plan));
    }
    if (next == Next::kPropose) {
      ++switches;
      controller.switched();
    }
  }
  void run(std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) step();
  }
};

TEST(PlanController, MeasuresPlansAndSwitches) {
  Job job{.steps = {{"raw", 0.1}, {"plan", 0.05}}, .predicted = {}};
  job.run(kFirst - 1);
  EXPECT_EQ(job.controller.state(), State::kMeasuring);
  EXPECT_EQ(job.plans, 0);
  job.step();
  EXPECT_EQ(job.controller.rules(), "plan");
  EXPECT_DOUBLE_EQ(job.controller.measured(), 0.1);  // slow steps do not count
  job.run(kTrial + kSkipAfterSwitch);
  EXPECT_EQ(job.controller.state(), State::kWatching);
  EXPECT_DOUBLE_EQ(job.controller.expected(), 0.05);
  job.run(1000);
  EXPECT_EQ(job.plans, 1) << "the step time has not changed";
}

TEST(PlanController, FirstStepsDoNotCount) {
  PlanController controller("raw");
  for (std::size_t k = 0; k < kFirst; ++k) (void)controller.step(k < kSkip ? 9.0 : 0.1, true);
  EXPECT_DOUBLE_EQ(controller.measured(), 0.1);
}

TEST(PlanController, KeepsAnEqualRuleSet) {
  Job job{.steps = {{"raw", 0.1}}, .predicted = {}, .plan = "raw"};
  job.run(1000);
  EXPECT_EQ(job.plans, 1);
  EXPECT_EQ(job.switches, 0);
  EXPECT_EQ(job.controller.state(), State::kWatching);
}

TEST(PlanController, ChangedLinkStartsAPlan) {
  Job job{.steps = {{"raw", 0.1}, {"plan", 0.05}, {"other", 0.2}}, .predicted = {}};
  job.run(200);
  ASSERT_EQ(job.controller.rules(), "plan");
  job.steps = {{"raw", 1.0}, {"plan", 0.4}, {"other", 0.2}};
  job.plan = "other";
  int took = 0;
  for (; job.controller.rules() != "other" && took < 1000; ++took) job.step();
  EXPECT_LE(took, static_cast<int>(kLeave));
  EXPECT_DOUBLE_EQ(job.controller.measured(), 0.4);
  job.run(kTrial + kSkipAfterSwitch);
  EXPECT_DOUBLE_EQ(job.controller.expected(), 0.2);
  // And back.
  job.steps = {{"raw", 0.1}, {"plan", 0.05}, {"other", 0.06}};
  job.plan = "plan";
  job.run(kLeave + kTrial + kSkipAfterSwitch);
  EXPECT_EQ(job.controller.rules(), "plan");
}

TEST(PlanController, NoisyStepsAreNoChange) {
  Job job{.steps = {{"raw", 0.1}, {"plan", 0.05}}, .predicted = {}};
  job.run(200);
  for (int k = 0; k < 500; ++k) {  // every second step takes two thirds longer
    job.steps["plan"] = k % 2 == 0 ? 0.05 : 0.083;
    job.step();
  }
  job.steps["plan"] = 0.059;  // a deviation of 18 % is accepted
  job.run(500);
  EXPECT_EQ(job.plans, 1);
}

TEST(PlanController, SlowerPlanIsReplacedByThePreviousOne) {
  Job job{.steps = {{"raw", 0.1}, {"plan", 0.103}}, .predicted = {{"plan", 0.09}}};
  job.run(kFirst + kTrial + kSkipAfterSwitch);
  EXPECT_EQ(job.controller.rules(), "raw");
  job.run(1000);
  EXPECT_EQ(job.controller.rules(), "raw");
  EXPECT_EQ(job.switches, 2);
  EXPECT_EQ(job.controller.state(), State::kWatching);
}

TEST(PlanController, WrongPredictionIsPlannedAgainOnce) {
  Job job{.steps = {{"raw", 0.1}, {"plan", 0.08}}, .predicted = {{"plan", 0.03}}};
  job.run(1000);
  EXPECT_EQ(job.plans, 2);
  EXPECT_EQ(job.controller.rules(), "plan");
}

TEST(PlanController, EndsForEveryPlannerResult) {
  Job job{.steps = {{"raw", 0.1}}, .predicted = {}};
  for (int k = 0; k < 50; ++k) job.steps["plan" + std::to_string(k)] = 0.1 - 0.001 * (k % 10);
  for (int k = 0; k < 3000; ++k) {
    job.plan = "plan" + std::to_string(job.plans % 50);
    job.step();
  }
  EXPECT_LE(job.switches, 3);
  EXPECT_EQ(job.controller.state(), State::kWatching);
}

TEST(PlanController, ChangedBucketsRestartTheMeasurement) {
  PlanController controller("raw");
  for (std::size_t k = 0; k + 1 < kFirst; ++k) EXPECT_EQ(controller.step(0.1, true), Next::kNothing);
  EXPECT_EQ(controller.step(0.1, false), Next::kNothing);
  for (std::size_t k = 0; k + 2 < kFirst; ++k) EXPECT_EQ(controller.step(0.2, true), Next::kNothing);
  EXPECT_EQ(controller.step(0.2, true), Next::kPlan);
  EXPECT_DOUBLE_EQ(controller.measured(), 0.2);
  EXPECT_EQ(controller.step(0.2, false), Next::kNothing);  // during planning: the plan is for other buckets
  EXPECT_EQ(controller.planned("plan", 0.1), Next::kNothing);
  EXPECT_EQ(controller.state(), State::kMeasuring);
}

TEST(PlanController, ChangingBucketsAreReportedOnce) {
  PlanController controller("raw");
  int reports = 0;
  for (int k = 0; k < 2000; ++k) reports += controller.step(0.1, k % 2 == 0) == Next::kUnstable ? 1 : 0;
  EXPECT_EQ(reports, 1);
}

TEST(PlanController, RefusedProposalsEnd) {
  PlanController controller("raw");
  int plans = 0, proposals = 0;
  for (int k = 0; k < 1000; ++k) {
    Next next = controller.step(0.1, true);
    if (next == Next::kPlan) {
      ++plans;
      next = controller.planned("plan", 0.05);
    }
    if (next != Next::kPropose) continue;
    ++proposals;
    controller.refused();
  }
  EXPECT_EQ(plans, 1);
  EXPECT_EQ(proposals, 1);
  EXPECT_EQ(controller.rules(), "raw");
  PlanController other("raw");
  for (std::size_t k = 0; k < kFirst; ++k) (void)other.step(0.1, true);
  other.failed();
  EXPECT_EQ(other.state(), State::kWatching);
}

TEST(PlanController, ContinuesFromASavedState) {
  PlanController controller("raw");
  controller.resume("plan", 0.05);
  int plans = 0;
  for (int k = 0; k < 500; ++k) plans += controller.step(0.052, true) == Next::kPlan ? 1 : 0;
  EXPECT_EQ(plans, 0) << "the restored rules and step are used";
  EXPECT_EQ(controller.rules(), "plan");
  for (std::size_t k = 0; k < kLeave && plans == 0; ++k)
    plans += controller.step(0.2, true) == Next::kPlan ? 1 : 0;
  EXPECT_EQ(plans, 1);
  controller.restart("plan");
  EXPECT_EQ(controller.state(), State::kMeasuring);
  EXPECT_EQ(controller.expected(), 0);
}

}  // namespace
}  // namespace tithe::automatic
