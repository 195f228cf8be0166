// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values drawn at random, for the unit tests and the suites.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace tithe::draws {

inline std::vector<float> bell(std::size_t n, float scale = 1, std::size_t seed = 1) {
  std::mt19937 rng(static_cast<std::uint32_t>(seed));
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = scale * normal(rng);
  return v;
}

enum class Shape {
  kGaussian,
  kLaplace,
  kPowerLaw,
  kCorrelated,
  kConstant,
  kSparse,
  kPeaks,
  kDenormal,
  kHuge
};
inline constexpr Shape kShapes[] = {Shape::kGaussian,   Shape::kLaplace,  Shape::kPowerLaw,
                                    Shape::kCorrelated, Shape::kConstant, Shape::kSparse,
                                    Shape::kPeaks,      Shape::kDenormal, Shape::kHuge};
inline constexpr const char* kShapeNames[] = {"gaussian", "laplace", "power law", "correlated", "constant",
                                              "sparse",   "peaks",   "denormal",  "huge"};
inline const char* name(Shape shape) { return kShapeNames[static_cast<int>(shape)]; }

inline std::vector<float> of(Shape shape, std::size_t n) {
  std::mt19937 rng(17);
  std::normal_distribution<float> normal;
  std::exponential_distribution<float> exponential;
  std::vector<float> x(n);
  float walk = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float sign = rng() & 1U ? 1.0F : -1.0F;
    const float a = normal(rng);
    switch (shape) {
      case Shape::kGaussian:
        x[i] = 0.01F * a;
        break;
      case Shape::kLaplace:
        x[i] = 0.01F * sign * exponential(rng);
        break;
      case Shape::kPowerLaw:
        x[i] = sign * std::exp(1.5F * exponential(rng));
        break;
      case Shape::kCorrelated:
        x[i] = walk = 0.99F * walk + 0.1F * a;
        break;
      case Shape::kConstant:
        x[i] = -0.375F;
        break;
      case Shape::kSparse:
        x[i] = rng() % 64 == 0 ? a : 0.0F;
        break;
      case Shape::kPeaks:  // one value in 128 is 500 times as large as the others
        x[i] = i % 128 == 77 ? 0.51F : sign * 0.00097F;
        break;
      case Shape::kDenormal:
        x[i] = 1e-39F * a;
        break;
      case Shape::kHuge:
        x[i] = sign * (rng() & 1U ? 1e37F : 1e35F * std::abs(a));
        break;
    }
  }
  return x;
}

}  // namespace tithe::draws
