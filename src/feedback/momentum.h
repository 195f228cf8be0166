// SPDX-License-Identifier: Apache-2.0
#pragma once
// Error feedback on values other than the residual, which the encoder writes (EncodeInput): clipping and momentum
// correction before encode (Lin et al., "Deep Gradient Compression", ICLR 2018), decay after it.
#include <cstddef>
#include <span>

#include "tithe/seam/spec.h"

namespace tithe::feedback {

// min(1, clip / |grad|), with the norm summed in double in the fixed order of base/fold.h; 1 if clip is 0.
float clip_factor(std::span<const float> grad, double clip);

// The momentum step; s is the clip factor. With Nesterov, grad is overwritten by the gradient that encode reads.
//   plain        next = mu * velocity + s * grad              encode reads next
//   Nesterov     next = mu * (velocity + s * grad)            encode reads next + s * grad
void apply_momentum(const FeedbackPolicy& policy, float s, std::span<float> grad, const float* velocity,
                    float* next);

// Multiplies the residual by the policy's factor. Returns the removed sum, computed in the fixed order of
// base/fold.h.
double decay(const FeedbackPolicy& policy, std::span<float> residual);

}  // namespace tithe::feedback
