// SPDX-License-Identifier: Apache-2.0
#include "base/fourier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

namespace tithe::fourier {
namespace {

TEST(Fourier, TwiddleFactorsAreCorrectlyRounded) {
  for (int m = 1; m <= kMaxLog; ++m) {
    const Tables& t = tables(m);
    ASSERT_EQ(t.turn.size(), t.length / 2);
    for (std::size_t k = 0; k < t.turn.size(); ++k) {
      const long double angle =
          std::numbers::pi_v<long double> * static_cast<long double>(k) / static_cast<long double>(t.length);
      ASSERT_EQ(t.turn[k].re, static_cast<float>(std::cos(angle))) << m << " " << k;
      ASSERT_EQ(t.turn[k].im, -static_cast<float>(std::sin(angle))) << m << " " << k;
    }
  }
}

TEST(Fourier, EqualsTheDefiningSum) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (int m = 1; m <= 9; ++m) {
    const Tables& t = tables(m);
    std::vector<Complex> x(t.length), z(t.length);
    for (std::size_t j = 0; j < t.length; ++j) z[t.bit_reversed[j]] = x[j] = {normal(rng), normal(rng)};
    transform(t, z);
    for (std::size_t f = 0; f < t.length; ++f) {
      double re = 0, im = 0;
      for (std::size_t j = 0; j < t.length; ++j) {
        const double angle =
            -2 * std::numbers::pi * static_cast<double>(f * j % t.length) / static_cast<double>(t.length);
        re += x[j].re * std::cos(angle) - x[j].im * std::sin(angle);
        im += x[j].re * std::sin(angle) + x[j].im * std::cos(angle);
      }
      const double allowed = 1e-6 * std::sqrt(static_cast<double>(t.length)) * m;
      ASSERT_NEAR(z[f].re, re, allowed) << m << " " << f;
      ASSERT_NEAR(z[f].im, im, allowed) << m << " " << f;
    }
  }
}

}  // namespace
}  // namespace tithe::fourier
