// SPDX-License-Identifier: Apache-2.0
#include "codec/sidco/sidco_fit.h"

#include <bit>
#include <cmath>
#include <limits>

namespace tithe::sidco {
namespace {

constexpr double kLn2 = 0.693147180559945309417232121458;
constexpr double kFirstShare = 0.25;  // fraction of the values beyond the first stage's threshold
constexpr int kMostStages = 8;
constexpr double kMost = 1.2;

double exponential_step(const Excess& e, double share) { return -(e.sum.total() / e.count) * log_of(share); }

double pareto_step(const Excess& e, double share) {
  const double mean = e.sum.total() / e.count;
  const double variance = e.squares.total() / e.count - mean * mean;
  const double q = mean * mean / variance;
  const double k = 0.5 * (q - 1);
  const double a = 0.5 * mean * (q + 1);
  const double log_share = log_of(share);
  if (std::fabs(k) < 1e-6) return -a * log_share;  // the limit: an exponential
  return a * (1 - exp_of(k * log_share)) / k;
}

double gamma_threshold(const Logs& of, double share) {
  if (of.count == 0) return 0;
  const double mean = of.sum.total() / of.count;
  const double s = log_of(mean) - of.logs() / of.count;
  if (!(s > 1e-9)) return 0;  // nearly equal values
  const double shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
  return -(mean / shape) * (log_of(share) + log_gamma(shape));
}

// Rounds to a float; 0 if the result is not finite or not positive.
double as_float(double t) {
  if (!(t > 0) || !(t <= double{std::numeric_limits<float>::max()})) return 0;
  return double{static_cast<float>(t)};
}

// The first stage, fitted to all values; gives the threshold for any share.
class First {
 public:
  First(const Kernels& with, Fit fit, std::span<const float> seen)
      : fit_(fit), all_(with.excess(seen, 0)), logs_(fit == Fit::kGamma ? with.logs(seen) : Logs{}) {}
  double threshold(double share) const {
    if (fit_ == Fit::kGamma)
      if (const double t = as_float(gamma_threshold(logs_, share)); t > 0) return t;
    return as_float(fit_ == Fit::kExponential ? exponential_step(all_, share) : pareto_step(all_, share));
  }

 private:
  Fit fit_;
  Excess all_;
  Logs logs_;
};

// One more stage: e is the excess of `total` values beyond t. Returns the threshold beyond which `share` of them lie.
double next_threshold(Fit fit, const Excess& e, double total, double t, double share) {
  const double of_these = share * total / e.count;
  if (!(of_these < 1)) return t;  // few enough already, or none
  return as_float(t + (fit == Fit::kExponential ? exponential_step(e, of_these) : pareto_step(e, of_these)));
}

std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }

}  // namespace

void Logs::take_logs() {
  for (double& p : product) mantissas += log_of(p), p = 1;
}

double Logs::logs() const { return kLn2 * exponents.total() + mantissas; }

namespace {

Excess excess(std::span<const float> values, double t) {
  Excess e;
  for (std::size_t i = 0; i < values.size(); ++i) e.add(i, values[i], t);
  return e;
}

Logs logs(std::span<const float> values) {
  Logs of;
  for (std::size_t i = 0; i < values.size(); ++i) {
    of.add(i, values[i]);
    if ((i + 1) % Logs::kAtOnce == 0) of.take_logs();
  }
  of.take_logs();
  return of;
}

std::size_t keep(std::span<const float> values, float t, float* kept) {
  std::size_t count = 0;
  for (const float v : values)
    if (const float m = std::bit_cast<float>(magnitude(v)); m >= t) kept[count++] = m;
  return count;
}

}  // namespace

const Kernels kReference = {.excess = excess, .logs = logs, .keep = keep};

// x = m 2^e with m in [1/sqrt 2, sqrt 2); ln m = 2 artanh((m - 1) / (m + 1)).
double log_of(double x) {
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0.70710678118654752440) {
    m *= 2;
    --e;
  }
  const double z = (m - 1) / (m + 1);
  double sum = 0;
  for (int k = 25; k >= 1; k -= 2) sum = sum * (z * z) + 1.0 / k;
  return e * kLn2 + 2 * z * sum;
}

// e^x = 2^k e^r with |r| <= ln 2 / 2.
double exp_of(double x) {
  if (!(x > -700)) return 0;
  if (x > 700) return 1e304;
  const double k = std::floor(x / kLn2 + 0.5);
  const double r = x - k * kLn2;
  double sum = 1;
  for (int j = 18; j >= 1; --j) sum = 1 + sum * r / j;
  return std::ldexp(sum, static_cast<int>(k));
}

// Stirling's series from 10 on; below, gamma(x) = gamma(x + 1) / x.
double log_gamma(double x) {
  double below = 1;
  for (; x < 10; x += 1) below *= x;
  const double y = 1 / (x * x);
  const double series = (1.0 / 12 - y * (1.0 / 360 - y * (1.0 / 1260 - y * (1.0 / 1680 - y / 1188)))) / x;
  constexpr double kHalfLog2Pi = 0.918938533204672741780329736406;
  return (x - 0.5) * log_of(x) - x + kHalfLog2Pi + series - log_of(below);
}

std::uint32_t fitted(const Kernels& with, Fit fit, double ratio, std::span<const float> seen, float* room) {
  const auto total = static_cast<double>(seen.size());
  const auto fits = [&](std::span<const float> values, double t) {
    if (!(t > 0)) return false;
    const double reached = with.excess(values, t).count;
    return reached >= kLeast * ratio * total && reached <= kMost * ratio * total;
  };
  const auto bits = [](double t) { return std::bit_cast<std::uint32_t>(static_cast<float>(t)); };

  const First first_stage(with, fit, seen);
  const double alone = first_stage.threshold(ratio);
  if (fits(seen, alone)) return bits(alone);
  const double first = ratio < kFirstShare ? first_stage.threshold(kFirstShare) : 0;
  if (!(first > 0)) return 0;
  // Later stages read only the values beyond the first threshold.
  const std::span<const float> tail(room, with.keep(seen, static_cast<float>(first), room));
  const Excess beyond_first = with.excess(tail, first);

  for (int stages = 2; stages <= kMostStages; ++stages) {
    const double step = exp_of(log_of(ratio / kFirstShare) / (stages - 1));
    double t = first;
    double share = kFirstShare;
    for (int now = 2; now <= stages && t > 0; ++now) {
      share = now == stages ? ratio : share * step;
      t = next_threshold(fit, now == 2 ? beyond_first : with.excess(tail, t), total, t, share);
    }
    if (fits(tail, t)) return bits(t);
  }
  return 0;
}

}  // namespace tithe::sidco
