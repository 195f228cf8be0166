// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands between a gradient and its encoder besides the residual: clipping and momentum correction
// (Lin et al., "Deep Gradient Compression", ICLR 2018). Residuals themselves are fused into encode (Carry).
#include <cstddef>
#include <span>

#include "tithe/spec.h"

namespace tithe::engine {

inline bool keeps_residual(const Spec& spec) {
  return spec.feedback.kind != Feedback::kNone && !spec.codec->traits.lossless;
}
inline bool keeps_velocity(const Spec& spec) { return spec.feedback.kind == Feedback::kMomentum; }

// min(1, clip / |grad|), the norm summed in double in the fixed shape of base/fold.h; 1 where clip is 0.
float clip_factor(std::span<const float> grad, double clip);

// Plain        next = mu * velocity + s * grad              encode reads next
// Nesterov     next = mu * (velocity + s * grad)            encode reads grad := next + s * grad
void apply_momentum(const FeedbackPolicy& policy, float s, std::span<float> grad, const float* velocity,
                    float* next);

// Decay: keeps the policy's part of what an encode left.
void forget(const FeedbackPolicy& policy, std::span<float> left);

// Momentum factor masking: what was sent starts anew. `payload` is that of a codec which selects values.
void mask_velocity(ByteView payload, float* velocity);

}  // namespace tithe::engine
