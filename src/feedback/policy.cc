// SPDX-License-Identifier: Apache-2.0
// Error feedback is stable if a round with a gradient of zeros does not enlarge the residual: residual_growth() bounds
// the residual's factor per round, and check_feedback() refuses settings with a factor above 1.
#include "feedback/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "codec/params.h"

namespace tithe {
namespace feedback {
namespace {

enum Param : std::size_t { kKind, kMu, kBeta, kMask, kNesterov, kClip };
constexpr double kAsFits = 2;  // the default of mask: on if the codec selects values

constexpr std::string_view kKinds[] = {"none", "residual", "momentum", "decay", "default"};
constexpr std::string_view kSwitch[] = {"off", "on"};
constexpr std::string_view kSwitchOrDefault[] = {"off", "on", "default"};
constexpr ParamSpec kTable[kParams] = {
    {"feedback", 4, 0, 4, "treatment of unsent values; default: none if lossless, else residual (all-reduce)",
     kKinds},
    {"mu", 0.9, 0, 1, "momentum of the correction (feedback=momentum)"},
    {"beta", 0.9, 0, 1, "part of the residual that is kept each round (feedback=decay)"},
    {"mask", kAsFits, 0, 2, "momentum factor masking; default: on if the codec selects values",
     kSwitchOrDefault},
    {"nesterov", 0, 0, 1, "Nesterov form of the momentum", kSwitch},
    {"clip", 0, 0, 1e30, "largest L2 norm of a tensor's gradient on one rank; 0 = no clipping"},
};

Feedback default_kind(const Codec& codec) {
  return codec.traits.lossless ? Feedback::kNone : Feedback::kResidual;
}

bool masks_by_default(const Codec& codec, Feedback kind) {
  return kind == Feedback::kMomentum && codec.traits.selects;
}

// The largest factor that counts as "no growth": bounds are stated with a margin of up to 2^-20 for rounding.
constexpr double kNoGrowth = 1 + 0x1p-16;

std::string text_of(const Settings& settings) {
  std::string out(settings.codec->name);
  const std::span<const ParamSpec> params = settings.codec->params;
  for (std::size_t i = 0; i < params.size(); ++i)
    params::append(out, params[i], settings[i], params[i].fallback);
  return out;
}

// The nearest other choice of one parameter with which residuals do not grow, as text for a spec. If choices are
// numbers, the distance is the difference of the numbers.
std::optional<std::string> cure_by(const Settings& settings, std::size_t param, double keep) {
  const ParamSpec& p = settings.codec->params[param];
  const auto number = [&](std::size_t choice) {
    double value = 0;
    const std::string_view text = p.choices[choice];
    return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{}
               ? value
               : static_cast<double>(choice);
  };
  std::optional<std::size_t> best;
  for (std::size_t to = 0; to < p.choices.size(); ++to) {
    Settings other = settings;
    other.value[param] = static_cast<double>(to);
    if (keep * residual_growth(other) > kNoGrowth) continue;
    const auto away = [&](std::size_t choice) {
      return std::fabs(number(choice) - number(static_cast<std::size_t>(settings[param])));
    };
    if (!best || away(to) < away(*best)) best = to;
  }
  if (!best) return std::nullopt;
  return fmt::format("{}={}", p.name, p.choices[*best]);
}

}  // namespace

// A residual r follows r' = (g + r) - C(g + r). There are two bounds, and either suffices:
//   energy     |x - C(x)|^2 <= c |x|^2 in expectation gives |r'| <= sqrt(c) |g + r|   (Stich et al., NeurIPS 2018)
//   largest    |x - C(x)|_inf <= e |x|_inf gives |r'|_inf <= e |g + r|_inf
// If the factor is below 1, the residual stays below a multiple of the largest gradient. If it is 1, the residual
// grows by at most one gradient per round.
double residual_growth(const Settings& settings) {
  // The number of values; with fewer values the bounds are not larger.
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  const Traits& traits = settings.codec->traits;
  double least = std::numeric_limits<double>::infinity();
  if (traits.contraction != nullptr) least = std::sqrt(traits.contraction(settings, kLarge));
  // If the bound is absolute, such as a threshold, it is small relative to large residuals: so two magnitudes are
  // tried.
  if (traits.error != nullptr)
    for (const double largest : {1.0, 0x1p40})
      least = std::min(least, traits.error(settings, largest, largest) / largest);
  return std::isfinite(least) ? least : 0;
}

Status check_feedback(const Settings& settings, const FeedbackPolicy& policy) {
  if (policy.kind == Feedback::kNone) return {};
  const double keep = policy.kind == Feedback::kDecay ? policy.beta : 1;  // of the residual
  const double growth = keep * residual_growth(settings);
  if (growth <= kNoGrowth) return {};
  std::vector<std::string> cures;
  for (std::size_t i = 0; i < settings.codec->params.size(); ++i)
    if (std::optional<std::string> cure = cure_by(settings, i, keep)) cures.push_back(*std::move(cure));
  return {Code::kInvalid,
          fmt::format("{}: feedback can multiply a residual by {:.3g} in each round, so it grows without "
                      "limit: add feedback=none{}",
                      text_of(settings), growth,
                      cures.empty() ? "" : fmt::format(", or set {}", fmt::join(cures, " or ")))};
}

FeedbackParams fallbacks() {
  FeedbackParams values{};
  for (std::size_t i = 0; i < kParams; ++i) values[i] = kTable[i].fallback;
  return values;
}

Result<FeedbackPolicy> policy_of(const Settings& settings, const FeedbackParams& values) {
  const Codec& codec = *settings.codec;
  FeedbackPolicy f;
  f.kind = values[kKind] == kTable[kKind].fallback ? default_kind(codec)
                                                   : static_cast<Feedback>(static_cast<int>(values[kKind]));
  f.requested = f.kind == Feedback::kResidual && values[kKind] != kTable[kKind].fallback;
  f.mu = values[kMu];
  f.beta = values[kBeta];
  f.nesterov = values[kNesterov] != 0;
  f.clip = values[kClip];
  f.mask = values[kMask] == kAsFits ? masks_by_default(codec, f.kind) : values[kMask] != 0;
  if (f.mask && !codec.traits.selects)
    return Status(
        Code::kInvalid,
        fmt::format("{}: mask=on requires a codec that selects values; {} sends a part of every value",
                    codec.name, codec.name));
  if (f.mask && f.kind != Feedback::kMomentum)
    return Status(Code::kInvalid,
                  fmt::format("{}: mask=on masks momentum, and this codec has none: add feedback=momentum",
                              codec.name));
  if (codec.traits.lossless && f.kind != Feedback::kNone)
    return Status(Code::kInvalid,
                  fmt::format("{} is lossless and has no residual: omit feedback", codec.name));
  TITHE_TRY(check_feedback(settings, f));
  return f;
}

void append(std::string& spec, const Codec& codec, const FeedbackPolicy& policy) {
  params::append(spec, kTable[kKind], static_cast<double>(policy.kind),
                 policy.requested ? kTable[kKind].fallback : static_cast<double>(default_kind(codec)));
  params::append(spec, kTable[kMu], policy.mu, kTable[kMu].fallback);
  params::append(spec, kTable[kBeta], policy.beta, kTable[kBeta].fallback);
  params::append(spec, kTable[kMask], policy.mask, masks_by_default(codec, policy.kind));
  params::append(spec, kTable[kNesterov], policy.nesterov, 0);
  params::append(spec, kTable[kClip], policy.clip, 0);
}

}  // namespace feedback

std::string_view name(Feedback feedback) { return feedback::kKinds[static_cast<std::size_t>(feedback)]; }

std::span<const ParamSpec> feedback_params() { return feedback::kTable; }

}  // namespace tithe
