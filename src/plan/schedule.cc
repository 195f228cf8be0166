// SPDX-License-Identifier: Apache-2.0
#include "tithe/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tithe {
namespace {

constexpr double kWarmest = 0.25;
constexpr std::uint64_t kStages = 4;
constexpr double kStep = 4;  // the factor of recover
constexpr double kDefaultSag = 0.05;
constexpr double kNoNumber = -1;

constexpr std::string_view kKnown =
    "a schedule is 'none', or 'warmup:ROUNDS', 'theta:L', 'recover:SAG' joined by '+'";

std::size_t ratio_at(const Codec& codec) { return codec.param(Role::kRatio); }

bool has_ratio(const Codec& codec) { return ratio_at(codec) < codec.params.size(); }

Status wrong(std::string_view item, std::string_view why) {
  return {Code::kInvalid, fmt::format("schedule '{}': {}", item, why)};
}

// Only square roots and products: their results are the same on all machines, unlike those of pow().
double fourth_root(double x) { return std::sqrt(std::sqrt(x)); }

}  // namespace

// Items are joined by '+'; each is a word or word:number, and sets one field. A word may occur once.
Result<Schedule> Schedule::parse(std::string_view text, const Spec& spec) {
  Schedule out;
  if (text.empty() || text == "none") return out;
  if (!has_ratio(*spec.codec))
    return wrong(text, fmt::format("codec {} has no parameter 'ratio' to change", spec.codec->name));
  out.target_ = spec.settings[ratio_at(*spec.codec)];
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t plus = rest.find('+');
    const std::string_view item = rest.substr(0, plus);
    rest = plus == std::string_view::npos ? std::string_view{} : rest.substr(plus + 1);
    if (plus != std::string_view::npos && rest.empty()) return wrong(text, "nothing after the last '+'");
    const std::size_t colon = item.find(':');
    const std::string_view word = item.substr(0, colon);
    double value = kNoNumber;
    if (colon != std::string_view::npos) {
      const std::string_view number = item.substr(colon + 1);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
      if (error != std::errc{} || end != number.data() + number.size() || !(value > 0) || value > 1e9)
        return wrong(item, "the number after the colon must be more than 0, and at most 1e9");
    }
    double* slot = word == "warmup"    ? &out.warmup_
                   : word == "theta"   ? &out.theta_
                   : word == "recover" ? &out.sag_
                                       : nullptr;
    if (slot == nullptr) return wrong(item, kKnown);
    if (*slot > 0) return wrong(text, fmt::format("'{}' stands twice", word));
    if (value == kNoNumber && slot == &out.sag_) value = kDefaultSag;
    if (value == kNoNumber) return wrong(item, kKnown);
    if (slot == &out.warmup_ && value != std::floor(value))
      return wrong(item, "the number of rounds must be whole");
    *slot = value;
  }
  return out;
}

std::string Schedule::text() const {
  std::string out;
  const auto add = [&out](std::string_view word, double value) {
    if (value > 0) fmt::format_to(std::back_inserter(out), "{}{}:{}", out.empty() ? "" : "+", word, value);
  };
  add("warmup", warmup_);
  add("theta", theta_);
  add("recover", sag_);
  return out;
}

// The ratio of the warm-up's stage, 0..3.
double Schedule::stage(std::uint64_t number) const {
  const double factor = fourth_root(target_ / kWarmest);
  double r = kWarmest;
  for (std::uint64_t k = 0; k < number; ++k) r *= factor;
  return std::max(r, target_);
}

// The next of theta's ratios: from the codec's ratio, in steps of the fourth root of two, up to 1.
double Schedule::next_rung(double ratio) { return std::min(1.0, ratio * fourth_root(2.0)); }

// The warm-up sets the ratio first. theta requires at least 1 - sqrt(L * learning rate) (Wang et al. 2020, theorem
// 3.5); recover multiplies the ratio by kStep per step.
double Schedule::ratio(std::uint64_t round) const {
  double r = target_;
  if (static_cast<double>(round) < warmup_)
    r = stage(static_cast<std::uint64_t>(static_cast<double>(kStages * round) / warmup_));
  if (theta_ > 0 && state_.learning_rate > 0) {
    const double desired = 1 - std::sqrt(theta_ * state_.learning_rate);
    double rung = target_;
    while (rung < desired) rung = next_rung(rung);
    r = std::max(r, rung);
  }
  for (std::uint32_t k = 0; k < state_.steps && r < 1; ++k) r = std::min(1.0, r * kStep);
  return r;
}

std::vector<double> Schedule::ratios() const {
  if (!active()) return {};
  std::vector<double> out{target_};
  if (warmup_ > 0)
    for (std::uint64_t k = 0; k < kStages; ++k) out.push_back(stage(k));
  if (theta_ > 0)
    for (double rung = target_; rung < 1; out.push_back(rung)) rung = next_rung(rung);
  if (sag_ > 0)
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] < 1) out.push_back(std::min(1.0, out[i] * kStep));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Status Schedule::learning_rate(double rate) {
  if (!(rate > 0) || !std::isfinite(rate))
    return {Code::kInvalid, fmt::format("learning rate {}: must be finite and more than 0", rate)};
  state_.learning_rate = rate;
  return {};
}

void Schedule::evaluated(double loss) {
  if (sag_ == 0) return;
  const double least = state_.min_loss;
  const bool sags = !std::isfinite(loss) || (std::isfinite(least) && loss > least + sag_ * std::abs(least));
  if (sags) {
    if (ratio(std::numeric_limits<std::uint64_t>::max()) < 1) ++state_.steps;
  } else if (state_.steps > 0) {
    --state_.steps;
  }
  if (std::isfinite(loss)) state_.min_loss = std::min(least, loss);
}

Settings with_ratio(const Spec& spec, double ratio) {
  Settings out = spec.settings;
  if (has_ratio(*spec.codec)) out.value[ratio_at(*spec.codec)] = ratio;
  return out;
}

}  // namespace tithe
