// SPDX-License-Identifier: Apache-2.0
#pragma once
// A threshold from a distribution fitted to sampled magnitudes, in stages: each stage fits the values beyond the
// threshold of the stage before, so only the tail has to follow the distribution.
//
//   exponential   t += mean ln(1/i)                                            of the excess over t
//   pareto        t += a (1 - i^k) / k,  k = (q - 1) / 2,  a = mean (q + 1) / 2,  q = mean^2 / variance
//   gamma         first stage: t = -(mean / a) (ln i + ln gamma(a)), a from s = ln mean - mean of ln (values but 0),
//                 a = (3 - s + sqrt((s - 3)^2 + 24 s)) / (12 s); meant for a up to about 1; if t is not above 0, and in
//                 all later stages, as pareto
// Here i is the fraction of the values beyond t that should lie beyond the new t.
//
// All arithmetic is + - * / and sqrt in a fixed order, sums in the order of base/fold.h: equal bits on all machines.
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

// Natural logarithm, exponential and log of the gamma function. The error is at most 1e-12, relative for results above
// 1. log_of and log_gamma: for 0 < x < 1e300.
double log_of(double x);
double exp_of(double x);
double log_gamma(double x);

// Count, sum and sum of squares of |v| - t, for the magnitudes at or above t. NaN does not count.
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

// Count, sum and sum of logs of the magnitudes that are neither 0 nor Inf nor NaN. The sum of logs comes from the sum
// of exponents and from products of mantissas: each lane of the fold multiplies as many as a double can hold before a
// log is taken.
struct Logs {
  static constexpr std::size_t kAtOnce = kFoldLanes * 512;
  static constexpr std::uint64_t kMantissa = 0xfffffffffffffULL;
  static constexpr std::uint64_t kOne = 0x3ff0000000000000ULL;
  Logs() { product.fill(1); }
  double count = 0;
  Fold<double> sum;
  Fold<double> exponents;
  std::array<double, kFoldLanes> product;
  double mantissas = 0;  // sum of the mantissas' logs
  void add(std::size_t i, float v) {
    const double m = std::fabs(double{v});
    if (!(m > 0 && m <= double{std::numeric_limits<float>::max()})) return;
    const auto bits = std::bit_cast<std::uint64_t>(m);
    count += 1;
    sum.add(i, m);
    exponents.add(i, static_cast<double>(bits >> 52) - 1023);
    product[i % kFoldLanes] *= std::bit_cast<double>((bits & kMantissa) | kOne);
  }
  // Call after every kAtOnce values, and after the last value.
  void take_logs();
  double logs() const;
};

inline constexpr std::size_t kKeptSlack = 16;

// The passes over the sample; they take most of the time.
struct Kernels {
  Excess (*excess)(std::span<const float> values, double t);
  Logs (*logs)(std::span<const float> values);
  // Writes the magnitudes at or above t, in order, and returns how many. kept holds values.size() + kKeptSlack
  // elements.
  std::size_t (*keep)(std::span<const float> values, float t, float* kept);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // sidco_fit_simd.cc

inline constexpr double kLeast = 0.8;  // the least accepted fraction of the ratio
// Tries M = 1, 2, ... stages. A single stage aims at `ratio`; of several, the first aims at a quarter of the values and
// each further one at the same factor less, down to `ratio`. Returns the first threshold that a fraction of 0.8 to 1.2
// times `ratio` of the values reaches, as the bits of a float > 0; 0 if there is none: then the values do not follow
// the distribution. room holds seen.size() + kKeptSlack elements.
std::uint32_t fitted(const Kernels& with, Fit fit, double ratio, std::span<const float> seen, float* room);

}  // namespace tithe::sidco
