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
// Everything is computed with + - * / and sqrt in one order, so that all machines find the same bits.
#include <cstdint>
#include <span>

namespace tithe::sidco {

enum class Fit : std::uint8_t { kExponential, kGamma, kPareto };

// Natural logarithm, exponential and log of gamma, within 1e-12 (of the result, where that is above 1); log_of and
// log_gamma for 0 < x < 1e300.
double log_of(double x);
double exp_of(double x);
double log_gamma(double x);

// With M = 1, 2, ... stages, of which the first aims at a quarter of the values and the others at equal steps from
// there to `ratio`: the first threshold that between 0.8 and 1.2 times `ratio` of the values reach, as the bits of a
// float > 0. 0 where there is none: then these values are of no such shape. room holds seen.size() elements.
std::uint32_t fitted(Fit fit, double ratio, std::span<const float> seen, float* room);

}  // namespace tithe::sidco
