// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of error feedback. A spec lists them after the codec's own parameters (tithe/seam/spec.h).
#include <array>
#include <string>

#include "tithe/seam/spec.h"

namespace tithe::feedback {

inline constexpr std::size_t kParams = 6;
using FeedbackParams = std::array<double, kParams>;  // in the order of feedback_params()
FeedbackParams fallbacks();

// An upper bound of the factor by which one round without a gradient multiplies a residual: the smaller of the
// factors of its L2 norm and of its largest magnitude. Above 1, residuals can grow without limit. 0: the codec states
// neither bound (Traits::contraction, Traits::error).
double residual_growth(const Settings& settings);

// kInvalid, with valid settings, if the policy's residual can grow without limit.
Status check_feedback(const Settings& settings, const FeedbackPolicy& policy);

// kInvalid if the codec does not support the policy with these settings.
Result<FeedbackPolicy> policy_of(const Settings& settings, const FeedbackParams& values);
// Appends the parameters that differ from the codec's default policy to a spec.
void append(std::string& spec, const Codec& codec, const FeedbackPolicy& policy);

inline bool keeps_residual(const Spec& spec) {
  return spec.feedback.kind != Feedback::kNone && !spec.codec->traits.lossless;
}
inline bool keeps_velocity(const Spec& spec) { return spec.feedback.kind == Feedback::kMomentum; }

}  // namespace tithe::feedback
