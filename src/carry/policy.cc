// SPDX-License-Identifier: Apache-2.0
#include "carry/policy.h"

#include <fmt/format.h>

#include "codec/params.h"

namespace tithe {
namespace carry {
namespace {

enum Param : std::size_t { kKind, kMu, kBeta, kMask, kNesterov, kClip };
constexpr double kAsFits = 2;  // third choice of mask: on where the codec selects values

constexpr std::string_view kKinds[] = {"none", "residual", "momentum", "decay", "default"};
constexpr std::string_view kSwitch[] = {"off", "on"};
constexpr std::string_view kSwitchOrDefault[] = {"off", "on", "default"};
constexpr ParamSpec kTable[kParams] = {
    {"feedback", 4, 0, 4,
     "what happens to values that were not sent; default: none if lossless, else residual (all-reduce)",
     kKinds},
    {"mu", 0.9, 0, 1, "momentum of the correction (feedback=momentum)"},
    {"beta", 0.9, 0, 1, "part of the residual that is kept each round (feedback=decay)"},
    {"mask", kAsFits, 0, 2, "momentum factor masking; default: on where the codec selects values",
     kSwitchOrDefault},
    {"nesterov", 0, 0, 1, "Nesterov form of the momentum", kSwitch},
    {"clip", 0, 0, 1e30, "largest L2 norm of a tensor's gradient on one rank; 0 = no clipping"},
};

Feedback usual_kind(const Codec& codec) {
  return codec.traits.lossless ? Feedback::kNone : Feedback::kResidual;
}

bool usually_masks(const Codec& codec, Feedback kind) {
  return kind == Feedback::kMomentum && codec.traits.selects;
}

}  // namespace

Values fallbacks() {
  Values values{};
  for (std::size_t i = 0; i < kParams; ++i) values[i] = kTable[i].fallback;
  return values;
}

Result<FeedbackPolicy> policy_of(const Codec& codec, const Values& values) {
  FeedbackPolicy f;
  f.kind = values[kKind] == kTable[kKind].fallback ? usual_kind(codec)
                                                   : static_cast<Feedback>(static_cast<int>(values[kKind]));
  f.asked = f.kind == Feedback::kResidual && values[kKind] != kTable[kKind].fallback;
  f.mu = values[kMu];
  f.beta = values[kBeta];
  f.nesterov = values[kNesterov] != 0;
  f.clip = values[kClip];
  f.mask = values[kMask] == kAsFits ? usually_masks(codec, f.kind) : values[kMask] != 0;
  if (f.mask && !codec.traits.selects)
    return Status(
        Code::kInvalid,
        fmt::format("{}: mask=on needs a codec that selects values; {} sends a little of every value",
                    codec.name, codec.name));
  if (f.mask && f.kind != Feedback::kMomentum)
    return Status(Code::kInvalid, fmt::format("{}: mask=on masks momentum, and there is none: add "
                                              "feedback=momentum",
                                              codec.name));
  if (codec.traits.lossless && f.kind != Feedback::kNone)
    return Status(Code::kInvalid, fmt::format("{} is lossless: there is nothing to feed back", codec.name));
  return f;
}

void append(std::string& spec, const Codec& codec, const FeedbackPolicy& policy) {
  params::append(spec, kTable[kKind], static_cast<double>(policy.kind),
                 policy.asked ? kTable[kKind].fallback : static_cast<double>(usual_kind(codec)));
  params::append(spec, kTable[kMu], policy.mu, kTable[kMu].fallback);
  params::append(spec, kTable[kBeta], policy.beta, kTable[kBeta].fallback);
  params::append(spec, kTable[kMask], policy.mask, usually_masks(codec, policy.kind));
  params::append(spec, kTable[kNesterov], policy.nesterov, 0);
  params::append(spec, kTable[kClip], policy.clip, 0);
}

}  // namespace carry

std::string_view name(Feedback feedback) { return carry::kKinds[static_cast<std::size_t>(feedback)]; }

std::span<const ParamSpec> feedback_params() { return carry::kTable; }

}  // namespace tithe
