// SPDX-License-Identifier: Apache-2.0
// The advisor of a session while TITHE_ADVISE names a file. It changes nothing: after kFirst equal steps it writes the
// advice of step_advice.h to that file. If a process has several sessions, the first one with a result writes.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "advisor/auto/auto_query.h"
#include "advisor/auto/sample.h"
#include "advisor/auto/step_advice.h"
#include "advisor/auto/step_measurements.h"
#include "base/quantile.h"
#include "tithe/seam/catalogue.h"

namespace tithe::automatic {
namespace {

class Observer final : public engine::Advisor {
 public:
  Observer(engine::AdviceRequest what, engine::AdvisorContext context)
      : what_(std::move(what)), context_(std::move(context)) {}

  void handed(std::uint64_t layout, std::span<const Tensor> bucket, std::int64_t at_ns) override {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    measurements_.bucket_submitted(layout, bucket, at_ns);
    sample_->take(bucket);
  }

  // After kFirst equal steps, or after kMaxUnstable steps without them, the advice is computed in the background, once.
  std::string round_over(std::int64_t at_ns, const Proposal& /*last*/) override {
    AutoQuery auto_query;
    std::vector<float> gradients;
    {
      const std::lock_guard lock(mutex_);
      if (over_) return {};
      const StepMeasurements::Step step = measurements_.step_over(at_ns);
      sample_->round_over();
      ++seen_;
      if (!step.same) steps_.clear();
      if (step.whole && step.same) steps_.push_back(step.seconds);
      over_ = steps_.size() >= kFirst || seen_ >= kMaxUnstable;
      if (!over_) return {};
      gradients = sample_->values();
      sample_.reset();
      if (steps_.size() >= kFirst) {
        auto_query = make_auto_query(context_, context_.first, allowed());
        auto_query.job = measurements_.job(context_.lanes);
        auto_query.step = median({steps_.begin() + kSkip, steps_.end()});
      }
    }
    context_.run_in_background(
        [this, auto_query = std::move(auto_query), gradients = std::move(gradients)]() mutable {
          try {
            write(answer(auto_query, gradients));
          } catch (const std::bad_alloc&) {
            std::fprintf(stderr, "tithe: TITHE_ADVISE=%s: not enough memory to plan\n", what_.path.c_str());
          }
        });
    return {};
  }

  void not_proposed(const Status& /*why*/) override {}
  std::string decided() const override { return {}; }
  void restored(const std::string& /*decided*/, std::span<const Rule> rules) override {
    const std::lock_guard lock(mutex_);
    context_.first.assign(rules.begin(), rules.end());
  }
  std::vector<std::string> messages() override { return {}; }

 private:
  // The user has allowed the codec that the job uses now. Exception: momentum, which a plan cannot mix with other
  // codecs.
  std::vector<Allowance> allowed() const {
    std::vector<Allowance> out = what_.allowed.allowed;
    const auto add = [&](const Spec& spec) {
      const Allowance one{"", spec};
      if (!always_allowed(spec) && spec.feedback.kind != Feedback::kMomentum &&
          std::find(out.begin(), out.end(), one) == out.end())
        out.push_back(one);
    };
    if (context_.first.empty()) add(context_.defaults.spec);
    return out;
  }

  static std::string answer(AutoQuery& auto_query, std::span<const float> gradients) {
    const auto trouble = [](const std::string& why) { return nlohmann::ordered_json{{"error", why}}.dump(); };
    if (auto_query.job.tensors.empty())
      return trouble(
          fmt::format("in {} steps, no {} consecutive steps passed the same buckets", kMaxUnstable, kFirst));
    std::vector<Spec> codecs = default_codecs();
    codecs.push_back(*parse_spec(kHint));
    const auto add = [&](const Spec& spec) {
      if (std::find(codecs.begin(), codecs.end(), spec) == codecs.end()) codecs.push_back(spec);
    };
    for (const Allowance& a : auto_query.allowed) add(a.codec);
    for (const Rule& r : auto_query.in_full)
      if (r.codec) add(*r.codec);
    Result<sim::Costs> costs = measured_costs(auto_query.job, codecs, gradients);
    if (!costs.ok()) return trouble(costs.status().what());
    auto_query.costs = std::move(*costs);
    const Result<Advice> advice = advise(auto_query);
    return advice.ok() ? to_json(*advice, auto_query) : trouble(advice.status().what());
  }

  void write(const std::string& text) const {
    const std::string beside = what_.path + ".part";
    std::ofstream file(beside);
    file << text << "\n" << std::flush;
    int why = errno;  // errno of the failed write, before another call changes it
    const bool good = file.good();
    file.close();
    if (good && file && std::rename(beside.c_str(), what_.path.c_str()) == 0) return;
    if (good) why = errno;
    std::remove(beside.c_str());
    std::fprintf(stderr, "tithe: TITHE_ADVISE=%s: cannot write: %s\n", what_.path.c_str(),
                 std::strerror(why));
  }

  const engine::AdviceRequest what_;
  engine::AdvisorContext context_;
  std::mutex mutex_;  // guards all members below, and context_.first
  StepMeasurements measurements_;
  std::optional<Sample> sample_{std::in_place};
  std::vector<Seconds> steps_;  // consecutive equal ones
  std::size_t seen_ = 0;
  bool over_ = false;
};

}  // namespace
}  // namespace tithe::automatic

namespace tithe::engine {

std::unique_ptr<Advisor> make_observer(AdviceRequest what, AdvisorContext context) {
  return std::make_unique<automatic::Observer>(std::move(what), std::move(context));
}

}  // namespace tithe::engine
