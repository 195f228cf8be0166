// SPDX-License-Identifier: Apache-2.0
#pragma once
// Difficult values for codec suites and unit tests.
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "support/exact.h"

namespace tithe::harness {

enum class Data { kGaussian, kHeavy, kConstant, kSparse, kDenormal, kHuge, kZeros, kTies };
inline constexpr Data kData[] = {Data::kGaussian, Data::kHeavy, Data::kConstant, Data::kSparse,
                                 Data::kDenormal, Data::kHuge,  Data::kZeros,    Data::kTies};
inline constexpr const char* kDataNames[] = {"gaussian", "heavy", "constant", "sparse",
                                             "denormal", "huge",  "zeros",    "ties"};

inline const char* name(Data data) { return kDataNames[static_cast<int>(data)]; }

// n finite values; the sum of any two is finite too.
inline std::vector<float> values(Data data, std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) {
    const float a = normal(rng);
    const auto dice = static_cast<unsigned>(rng());
    switch (data) {
      case Data::kGaussian:
        x = 1e-3F * a;
        break;
      case Data::kHeavy:
        x = a * std::exp(4.0F * normal(rng));
        break;
      case Data::kConstant:
        x = -0.375F;
        break;
      case Data::kSparse:
        x = dice % 64 == 0 ? a : 0.0F;
        break;
      case Data::kDenormal:
        x = a * 1e-39F;
        break;
      case Data::kHuge:
        x = (dice & 1U ? 1.0F : -1.0F) * (dice & 2U ? 1.6e38F : 1e5F * a);
        break;
      case Data::kZeros:
        x = dice & 1U ? 0.0F : -0.0F;
        break;
      case Data::kTies:
        x = 0.25F * static_cast<float>(static_cast<int>(dice % 5) - 2);
        break;
    }
  }
  return v;
}

// Finite values at which sums overflow and roundings vanish. A codec may report them, so they are not among kData.
//   top      all at 3e38, so that the sum of any two overflows
//   mixed    both signs at the top, so that some sums overflow, and small values
//   lone     one value at the top among ordinary ones
//   third    1.2e38: two add up to a finite float, three do not
//   bottom   the smallest floats, most of them subnormal: all sums are exact
enum class Extreme { kTop, kMixed, kLone, kThird, kBottom };
inline constexpr Extreme kExtremes[] = {Extreme::kTop, Extreme::kMixed, Extreme::kLone, Extreme::kThird,
                                        Extreme::kBottom};
inline constexpr const char* kExtremeNames[] = {"top", "mixed", "lone", "third", "bottom"};

inline const char* name(Extreme kind) { return kExtremeNames[static_cast<int>(kind)]; }

inline std::vector<float> extremes(Extreme kind, std::size_t n, unsigned seed) {
  constexpr float kMaxFloat = std::numeric_limits<float>::max();
  constexpr float kMinNormal = std::numeric_limits<float>::min();
  constexpr float kTops[] = {kMaxFloat, -kMaxFloat, 3e38F, -3e38F, kMaxFloat / 2,
                             -1.2e38F,  1.0F,       0.0F,  -0.0F,  -1e-40F};
  constexpr float kBottoms[] = {1e-45F,      -1e-45F,        1e-40F, -1e-39F, kMinNormal,
                                -kMinNormal, 2 * kMinNormal, 0.0F,   -0.0F};
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const std::size_t lone = n == 0 ? 0 : rng() % n;
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) {
    switch (kind) {
      case Extreme::kTop:
        v[i] = 3e38F;
        break;
      case Extreme::kMixed:
        v[i] = kTops[rng() % std::size(kTops)];
        break;
      case Extreme::kLone:
        v[i] = i == lone ? -kMaxFloat : normal(rng);
        break;
      case Extreme::kThird:
        v[i] = 1.2e38F;
        break;
      case Extreme::kBottom:
        v[i] = kBottoms[rng() % std::size(kBottoms)];
        break;
    }
  }
  return v;
}

// A few of the floats that there are, most of them odd; not finite: NaN and infinities among them.
inline Floats odd(std::size_t n, bool finite, unsigned seed) {
  constexpr float kMaxFloat = std::numeric_limits<float>::max();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Floats pool = {0.0F,       -0.0F, 1e-45F, -1e-45F,
                       1e-39F,     1.0F,  -1.0F,  kMaxFloat / 2,
                       -kMaxFloat, kInf,  -kInf,  std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 rng(seed);
  Floats v(n);
  for (float& x : v) x = pool[rng() % (finite ? pool.size() - 3 : pool.size())];
  return v;
}

}  // namespace tithe::harness
