// SPDX-License-Identifier: Apache-2.0
// The advisor of a session with codec "auto": it collects measurements of rounds, and decides when (plan_controller.h)
// and what (decide.h) to plan.
//
// Threads: handed() runs on the thread of sync(); round_over(), not_proposed() and restored() on that of commit();
// planning in the background; messages() and decided() on any thread.
// Locks: mutex_ before measurements_mutex_. Neither is held while a plan is made.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "advisor/auto/auto_query.h"
#include "advisor/auto/sample.h"
#include "advisor/auto/step_measurements.h"
#include "advisor/sim/profile.h"
#include "base/text.h"
#include "engine/peers/session_config.h"
#include "engine/session/advisor.h"

namespace tithe::automatic {
namespace {

constexpr std::size_t kMaxText = 300;  // longest text in one log line

class Automatic final : public engine::Advisor {
 public:
  Automatic(AutoSpec spec, engine::AdvisorContext context)
      : spec_(std::move(spec)),
        context_(std::move(context)),
        controller_(plain(context_.first)),
        rules_(context_.first) {
    std::vector<std::string> may;
    for (const Spec& codec : default_codecs()) may.push_back(to_string(codec));
    for (const Allowance& a : spec_.allowed) may.push_back(to_string(a));
    report(fmt::format("auto: measures, then chooses from {}", fmt::join(may, ", ")));
  }

  void handed(std::uint64_t layout, std::span<const Tensor> bucket, std::int64_t at_ns) override {
    const std::lock_guard lock(measurements_mutex_);
    measurements_.bucket_submitted(layout, bucket, at_ns);
    if (sample_) sample_->take(bucket);
  }

  std::string round_over(std::int64_t at_ns, const Proposal& last) override {
    std::unique_lock lock(mutex_);
    const StepMeasurements::Step step = end_step(at_ns);
    if (proposed_) handle_outcome(last);
    PlanController::Next next = PlanController::Next::kNothing;
    if (step.whole) next = controller_.step(step.seconds, step.same);
    if (plan_) {
      next = adopt_plan(*plan_);
      plan_.reset();
    }
    if (next == PlanController::Next::kUnstable)
      report(fmt::format(
          "auto: in {} steps, no {} consecutive steps passed the same buckets: keeps the current rules",
          kMaxUnstable, kFirst));
    if (next == PlanController::Next::kPlan) {
      AutoQuery auto_query = make_auto_query();
      lock.unlock();
      plan_in_background(std::move(auto_query));  // without lanes the plan is made before this returns
      return {};
    }
    if (next != PlanController::Next::kPropose) return {};
    if (controller_.restores_previous())
      report(fmt::format(
          "auto: a step takes {:.1f} ms with this plan, more than before: returns to the previous plan",
          1e3 * controller_.measured()));
    proposed_ = true;
    // The controller has the rules without reasons; planned_ has them with reasons.
    return controller_.proposal() == plain(planned_) ? to_json(planned_) : controller_.proposal();
  }

  void not_proposed(const Status& why) override {
    const std::lock_guard lock(mutex_);
    proposed_ = false;
    controller_.refused();
    report("auto: trouble: the plan could not be proposed: " + why.what());
  }

  std::string decided() const override {
    const std::lock_guard lock(mutex_);
    const bool watching = controller_.state() == PlanController::State::kWatching;
    return nlohmann::ordered_json{{"where", where()}, {"step_s", watching ? controller_.expected() : 0}}
        .dump();
  }

  void restored(const std::string& decided, std::span<const Rule> rules) override {
    const std::lock_guard lock(mutex_);
    rules_.assign(rules.begin(), rules.end());
    const nlohmann::json was = nlohmann::json::parse(decided, nullptr, false);
    const bool known = was.is_object() && was.contains("where") && was["where"].is_string() &&
                       was.contains("step_s") && was["step_s"].is_number();
    const double step = known ? was["step_s"].get<double>() : 0;
    const std::string there = known ? was["where"].get<std::string>() : std::string();
    if (known && there == where() && step > 0) {
      controller_.resume(plain(rules_), step);
      return;
    }
    controller_.restart(plain(rules_));
    if (known && there != where())
      report(
          fmt::format("auto: the state's plan was made on {}, this is {}: uses its rules and measures again",
                      printed(there), printed(where())));
  }

  std::vector<std::string> messages() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

 private:
  struct Plan {
    Result<AutoDecision> answer;
    std::int64_t began_ns = 0, ended_ns = 0;
  };

  // The form in which the controller compares rules: without reasons.
  static std::string plain(std::vector<Rule> rules) {
    for (Rule& r : rules) r.why.clear();
    return to_json(rules);
  }
  static std::string printed(const std::string& text) { return printable(text, kMaxText); }
  void report(std::string line) {
    constexpr std::size_t kMaxLines = 100;  // maximum if nobody reads them
    if (messages_.size() < kMaxLines) messages_.push_back(std::move(line));
  }

  // A description of the hosts for which a decision is valid.
  std::string where() const {
    return fmt::format("{} ranks on hosts {} of {}", context_.defaults.world,
                       context_.defaults.hosts.text(context_.defaults.world), sim::machine_name());
  }

  StepMeasurements::Step end_step(std::int64_t at_ns) {
    const std::lock_guard lock(measurements_mutex_);
    if (sample_) sample_->round_over();
    return measurements_.step_over(at_ns);
  }

  // Handles the outcome of the last proposal.
  void handle_outcome(const Proposal& last) {
    if (last.state == Proposal::State::kSwitched) {
      proposed_ = false;
      controller_.switched();
      {
        const std::lock_guard lock(measurements_mutex_);
        measurements_.reset();
      }
      const Result<std::vector<Rule>> now = parse_rules(controller_.rules());
      TITHE_ASSERT(now.ok());
      rules_ = *now;
    } else if (last.state == Proposal::State::kRefused) {
      proposed_ = false;
      controller_.refused();
      report("auto: trouble: the plan was refused: " + last.why.what());
    }
  }

  PlanController::Next adopt_plan(const Plan& plan) {
    if (!plan.answer.ok()) {
      controller_.failed();
      if (const std::string why = plan.answer.status().what(); why != trouble_)
        report(fmt::format("auto: trouble: planning failed, the current rules stay: {}", why));
      trouble_ = plan.answer.status().what();
      return PlanController::Next::kNothing;
    }
    trouble_.clear();
    report("auto: " + plan.answer->verdict);
    context_.mark("auto: " + plan.answer->verdict, plan.began_ns, plan.ended_ns);
    planned_ = plan.answer->rules;
    return controller_.planned(plain(planned_), plan.answer->predicted);
  }

  AutoQuery make_auto_query() {
    AutoQuery auto_query = automatic::make_auto_query(context_, rules_, spec_.allowed);
    {
      const std::lock_guard lock(measurements_mutex_);
      auto_query.job = measurements_.job(context_.lanes);
    }
    auto_query.step = controller_.measured();
    return auto_query;
  }

  void plan_in_background(AutoQuery auto_query) {
    context_.run_in_background([this, auto_query = std::move(auto_query)]() mutable {
      Plan plan{.answer = AutoDecision{}, .began_ns = context_.now_ns()};
      try {
        if (const Status s = measure_codecs(auto_query.job); s.ok()) {
          auto_query.costs = *costs_;
          plan.answer = decide(auto_query);
        } else {
          plan.answer = s;
        }
      } catch (const std::bad_alloc&) {
        plan.answer = Status(Code::kIo, "there is no memory for a plan");
      }
      plan.ended_ns = context_.now_ns();
      const std::lock_guard lock(mutex_);
      plan_ = std::move(plan);
    });
  }

  Status measure_codecs(const planner::Job& job) {
    if (costs_) return {};
    std::vector<float> gradients;
    {
      const std::lock_guard lock(measurements_mutex_);
      if (sample_) gradients = sample_->values();
      sample_.reset();
    }
    std::vector<Spec> codecs = default_codecs();
    for (const Allowance& a : spec_.allowed) codecs.push_back(a.codec);
    Result<sim::Costs> measured = measured_costs(job, codecs, gradients);
    if (!measured.ok()) return measured.status();
    costs_ = std::move(*measured);
    return {};
  }

  const AutoSpec spec_;
  const engine::AdvisorContext context_;
  std::optional<sim::Costs> costs_;  // only used by the background task; measured once per session

  std::mutex measurements_mutex_;  // taken by sync(), so held only briefly
  StepMeasurements measurements_;
  std::optional<Sample> sample_{std::in_place};  // until the codecs are measured

  mutable std::mutex mutex_;  // guards all members below
  PlanController controller_;
  std::vector<Rule> rules_;    // in force
  std::vector<Rule> planned_;  // of the last plan
  std::optional<Plan> plan_;
  bool proposed_ = false;
  std::string trouble_;  // the last reported error
  std::vector<std::string> messages_;
};

}  // namespace
}  // namespace tithe::automatic

namespace tithe::engine {

std::unique_ptr<Advisor> make_advisor(AutoSpec spec, AdvisorContext context) {
  return std::make_unique<automatic::Automatic>(std::move(spec), std::move(context));
}

}  // namespace tithe::engine
