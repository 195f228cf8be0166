// SPDX-License-Identifier: Apache-2.0
#include "feedback/momentum.h"

#include <cmath>

#include "base/fold.h"

namespace tithe::feedback {

float clip_factor(std::span<const float> grad, double clip) {
  if (clip <= 0) return 1.0F;
  Fold<double> squares;
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const double v = grad[i];
    squares.add(i, v * v);
  }
  const double norm = std::sqrt(squares.total());
  return norm > clip ? static_cast<float>(clip / norm) : 1.0F;
}

void apply_momentum(const FeedbackPolicy& policy, float s, std::span<float> grad, const float* velocity,
                    float* next) {
  const auto mu = static_cast<float>(policy.mu);
  if (policy.nesterov) {
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const float g = s * grad[i];
      next[i] = mu * (velocity[i] + g);
      grad[i] = next[i] + g;
    }
    return;
  }
  for (std::size_t i = 0; i < grad.size(); ++i) next[i] = mu * velocity[i] + s * grad[i];
}

double decay(const FeedbackPolicy& policy, std::span<float> residual) {
  const auto beta = static_cast<float>(policy.beta);
  Fold<double> decayed;
  for (std::size_t i = 0; i < residual.size(); ++i) {
    const float scaled = beta * residual[i];
    decayed.add(i, double{residual[i]} - double{scaled});
    residual[i] = scaled;
  }
  return decayed.total();
}

}  // namespace tithe::feedback
