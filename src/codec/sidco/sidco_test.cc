// SPDX-License-Identifier: Apache-2.0
#include "codec/sidco/sidco.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "codec/sidco/sidco_fit.h"
#include "conformance/codec_case.h"
#include "support/sparse_output.h"

namespace tithe::sparse {
namespace {

using sidco::Fit;

// Values of either sign, by the name of their shape.
std::vector<float> draw(const std::string& shape, std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::exponential_distribution<double> exponential;
  std::uniform_real_distribution<double> uniform(1e-9, 1);
  std::vector<float> v(n);
  for (float& x : v) {
    const double m = shape == "gaussian"  ? std::fabs(normal(rng))
                     : shape == "laplace" ? exponential(rng)
                                          : std::pow(uniform(rng), -1.0 / 3);  // P(m > x) = x^-3
    x = static_cast<float>(1e-3 * (rng() % 2 == 0 ? m : -m));
  }
  return v;
}

TEST(SidcoFit, FunctionsAreThoseOfTheLibrary) {
  for (const double x : {1e-300, 1e-6, 0.01, 0.25, 0.7, 0.70710678, 1.0, 1.4142135, 3.0, 1e5, 1e299})
    EXPECT_NEAR(sidco::log_of(x), std::log(x), 1e-12 * std::fmax(1, std::fabs(std::log(x)))) << x;
  for (const double x : {-699.0, -30.0, -1.0, -1e-8, 0.0, 0.5, 10.0, 699.0})
    EXPECT_NEAR(sidco::exp_of(x) / std::exp(x), 1, 1e-12) << x;
  for (const double x : {1e-3, 0.3, 0.5, 1.0, 2.0, 7.5, 10.0, 1000.0})
    EXPECT_NEAR(sidco::log_gamma(x), std::lgamma(x), 1e-12 * std::fmax(1, std::fabs(std::lgamma(x)))) << x;
  EXPECT_EQ(sidco::exp_of(-1e9), 0);
}

// Each pass over a sample, by vectors of each width, to the bit; with what no fit may choke on among the values.
TEST(SidcoFit, PassesAreThoseOfTheReference) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto same = [](const Fold<double>& a, const Fold<double>& b) { return a.lane == b.lane; };
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const harness::OnlyTarget only(target);
    for (const std::size_t n : {0U, 1U, 15U, 16U, 47U, 8191U, 8192U, 8193U, 20'000U}) {
      std::vector<float> seen = draw("laplace", n, 4);
      if (n > 40) seen[3] = 0, seen[17] = 1e-42F, seen[20] = std::numeric_limits<float>::max();
      for (const float odd : {0.5F, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
        if (n > 40) seen[n - 20] = odd;
        const sidco::Logs logs = sidco::kSimd.logs(seen), logs_want = sidco::kReference.logs(seen);
        ASSERT_TRUE(logs.count == logs_want.count && same(logs.sum, logs_want.sum)) << n;
        ASSERT_EQ(logs.logs(), logs_want.logs()) << n;
        for (const float t : {0.0F, 1e-3F, 1.0F}) {
          const sidco::Excess e = sidco::kSimd.excess(seen, t), want = sidco::kReference.excess(seen, t);
          ASSERT_TRUE(e.count == want.count && same(e.sum, want.sum) && same(e.squares, want.squares)) << n;
          std::vector<float> kept(n + sidco::kKeptSlack), kept_want(n);
          kept.resize(sidco::kSimd.keep(seen, t, kept.data()));
          kept_want.resize(sidco::kReference.keep(seen, t, kept_want.data()));
          ASSERT_EQ(kept, kept_want) << n;
        }
      }
    }
  }
}

TEST(SidcoFit, LogsAreSummed) {
  const std::vector<float> seen = draw("power", 50'000, 6);
  double want = 0;
  for (const float v : seen) want += std::log(std::fabs(double{v}));
  EXPECT_NEAR(sidco::kReference.logs(seen).logs() / want, 1, 1e-12);
}

// The largest of -ln(u) for u = 1/2n, 3/2n, ... beyond t are a share e^-t: the fit has to find it at once.
TEST(SidcoFit, AnExponentialIsFoundExactly) {
  std::vector<float> seen(100'000), room(seen.size() + sidco::kKeptSlack);
  for (std::size_t i = 0; i < seen.size(); ++i)
    seen[i] =
        static_cast<float>(-std::log((static_cast<double>(i) + 0.5) / static_cast<double>(seen.size())));
  const auto bits = sidco::fitted(sidco::kSimd, Fit::kExponential, 0.01, seen, room.data());
  EXPECT_NEAR(std::bit_cast<float>(bits), std::log(100.0), 1e-3);
}

TEST(SidcoFit, KnownShapesNeedNoQuantile) {
  for (const char* shape : {"gaussian", "laplace", "power"})
    for (const Fit fit : {Fit::kExponential, Fit::kGamma, Fit::kPareto})
      for (const double ratio : {0.1, 0.01, 0.001}) {
        const std::vector<float> seen = draw(shape, 200'000, 9);
        std::vector<float> room(seen.size() + sidco::kKeptSlack);
        const std::uint32_t bits = sidco::fitted(sidco::kSimd, fit, ratio, seen, room.data());
        ASSERT_NE(bits, 0U) << shape << " " << static_cast<int>(fit) << " " << ratio;
        double reached = 0;
        for (const float v : seen) reached += magnitude(v) >= bits;
        EXPECT_NEAR(reached / (ratio * 200'000), 1, 0.2 + 1e-9) << shape << " " << static_cast<int>(fit);
      }
}

TEST(SidcoFit, ConstantsAndZerosHaveNoShape) {
  std::vector<float> room(1000 + sidco::kKeptSlack);
  for (const Fit fit : {Fit::kExponential, Fit::kGamma, Fit::kPareto})
    for (const float v : {0.0F, -0.5F, 3e38F}) {
      EXPECT_EQ(sidco::fitted(sidco::kSimd, fit, 0.01, std::vector<float>(1000, v), room.data()), 0U);
    }
  EXPECT_EQ(sidco::fitted(sidco::kSimd, Fit::kPareto, 0.01, {}, room.data()), 0U);
}

TEST(Sidco, KeepsAboutTheRatio) {
  constexpr std::size_t n = 200'000;
  for (const char* shape : {"gaussian", "laplace", "power"})
    for (const char* fit : {"exponential", "gamma", "pareto"}) {
      Call call = call_of("sidco:sample=0.2,fit=" + std::string(fit));
      double sum = 0;
      constexpr int kRounds = 3;
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        call.round = round;
        sum += static_cast<double>(encode_all(sidco_codec, call, draw(shape, n, round)).index.size());
      }
      EXPECT_NEAR(sum / kRounds / 2000, 1, 0.25) << shape << " " << fit;
    }
}

TEST(Sidco, EqualValuesAreSent) {
  EXPECT_EQ(encode_all(sidco_codec, call_of("sidco"), std::vector<float>(50'000, -2)).index.size(), 500U);
}

}  // namespace
}  // namespace tithe::sparse
