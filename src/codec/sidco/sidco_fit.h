// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threshold that a distribution fitted to sampled magnitudes suggests, in stages: each stage fits what lies beyond
// the threshold of the stage before, so that only the tail has to have the assumed shape.
//
//   exponential   t += mean ln(1/i)                                            of the excess over t
//   pareto        t += a (1 - i^k) / k,  k = (q - 1) / 2,  a = mean (q + 1) / 2,  q = mean^2 / variance
//   gamma         first stage: t = -(mean / a) (ln i + ln gamma(a)), a from s = ln mean - mean of ln (values but 0),
//                 a = (3 - s + sqrt((s - 3)^2 + 24 s)) / (12 s); meant for a up to about 1; where
//                 t is not above 0, and in all later stages, as pareto
// where i is the share of the values beyond t that is to lie beyond the new t.
//
// Everything is computed with + - * / and sqrt in one order, sums in the shape of base/fold.h, so that all machines
// find the same bits.
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/fold.h"

namespace tithe::sidco {

enum class Fit : std::uint8_t { kExponential, kGamma, kPareto };

// Natural logarithm, exponential and log of gamma, within 1e-12 (of the result, where that is above 1); log_of and
// log_gamma for 0 < x < 1e300.
double log_of(double x);
double exp_of(double x);
double log_gamma(double x);

// Of the magnitudes at or beyond t: their distance to it. NaN lies nowhere.
struct Excess {
  double count = 0;
  Fold<double> sum;
  Fold<double> squares;
  void add(std::size_t i, float v, double t) {
    const double over = std::fabs(double{v}) - t;
    if (!(over >= 0)) return;
    count += 1;
    sum.add(i, over);
    squares.add(i, over * over);
  }
};

// Of the magnitudes that are neither 0 nor Inf nor NaN. Their logs are those of the exponents' powers of two and of
// the mantissas, which are multiplied up in each lane, as many as a double holds, before a log is taken.
struct Logs {
  static constexpr std::size_t kAtOnce = kFoldLanes * 512;
  static constexpr std::uint64_t kMantissa = 0xfffffffffffffULL;
  static constexpr std::uint64_t kOne = 0x3ff0000000000000ULL;
  Logs() { product.fill(1); }
  double count = 0;
  Fold<double> sum;
  Fold<double> exponents;
  std::array<double, kFoldLanes> product;
  double mantissas = 0;  // sum of logs
  void add(std::size_t i, float v) {
    const double m = std::fabs(double{v});
    if (!(m > 0 && m <= double{std::numeric_limits<float>::max()})) return;
    const auto bits = std::bit_cast<std::uint64_t>(m);
    count += 1;
    sum.add(i, m);
    exponents.add(i, static_cast<double>(bits >> 52) - 1023);
    product[i % kFoldLanes] *= std::bit_cast<double>((bits & kMantissa) | kOne);
  }
  // After every kAtOnce values, and the last one.
  void take_logs();
  double logs() const;
};

inline constexpr std::size_t kKeptSlack = 16;

// The passes over the sample, where the time goes.
struct Kernels {
  Excess (*excess)(std::span<const float> values, double t);
  Logs (*logs)(std::span<const float> values);
  // Writes the magnitudes at or beyond t, in order, and returns how many they are. kept holds
  // values.size() + kKeptSlack elements.
  std::size_t (*keep)(std::span<const float> values, float t, float* kept);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // sidco_fit_simd.cc

inline constexpr double kLeast = 0.8;  // of the ratio asked for
// With M = 1, 2, ... stages, of which the first aims at a quarter of the values and the others at equal steps from
// there to `ratio`: the first threshold that between 0.8 and 1.2 times `ratio` of the values reach, as the bits of a
// float > 0. 0 where there is none: then these values are of no such shape. room holds seen.size() + kKeptSlack
// elements.
std::uint32_t fitted(const Kernels& with, Fit fit, double ratio, std::span<const float> seen, float* room);

}  // namespace tithe::sidco
