// SPDX-License-Identifier: Apache-2.0
// Each codec's loss in one round against its Traits: the contraction factor on inputs of every distribution, the
// bound of a value's error, and exact constants. A bound far above the observed loss fails too, since such a test
// would prove nothing.
#include "error_case.h"
#include "tithe/seam/catalogue.h"

namespace tithe::conformance {
namespace {

constexpr int kSeeds = 16;
constexpr std::size_t kErrorSizes[] = {1, 1000, 16'384};

// C(x) - x|^2 / |x|^2, with all terms relative to the largest value, so that nothing overflows.
double loss(const Floats& x, const Floats& sent) {
  double most = 0, error = 0, energy = 0;
  for (const float v : x) most = std::max(most, std::abs(double{v}));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i] / most, d = (double{sent[i]} - x[i]) / most;
    error += d * d;
    energy += v * v;
  }
  return error / energy;
}

struct Mean {
  double mean = 0;
  double deviation = 0;  // of the mean
};
Mean mean_of(const std::vector<double>& all) {
  Mean m;
  for (const double v : all) m.mean += v / static_cast<double>(all.size());
  for (const double v : all) m.deviation += (v - m.mean) * (v - m.mean);
  m.deviation = std::sqrt(m.deviation) / static_cast<double>(all.size() - 1);
  return m;
}

class ErrorSuite : public testing::TestWithParam<ErrorCase> {
 protected:
  const Codec& codec = *GetParam().codec;
  const Settings& settings = GetParam().settings;
};

// Six deviations of the mean over seeds; for a codec without random numbers those are none.
TEST_P(ErrorSuite, ErrorIsAtMostTheStatedBound) {
  for (const std::size_t n : kErrorSizes)
    for (const Shape shape : draws::kShapes) {
      SCOPED_TRACE(testing::Message() << draws::name(shape) << ", " << n << " values");
      const Floats x = draws::of(shape, n);
      if (std::all_of(x.begin(), x.end(), [](float v) { return v == 0.0F; })) continue;
      double stated = codec.traits.contraction ? codec.traits.contraction(settings, n) : 1.0;
      if (shape == Shape::kDenormal) stated = std::max(stated, 1.0);  // a float's step is not small there
      std::vector<double> losses;
      const auto max_after = [&](int seeds) {
        while (std::ssize(losses) < seeds)
          losses.push_back(loss(x, arrives(codec, settings, x, static_cast<std::uint64_t>(losses.size()))));
        const Mean m = mean_of(losses);
        return m.mean - 6 * m.deviation;
      };
      // If a few values hold most of the energy, few draws select none of them, and the observed deviation is 0 too.
      if (max_after(kSeeds) <= stated * (1 + 1e-5)) continue;
      EXPECT_LE(max_after(64 * kSeeds), stated * (1 + 1e-5));
    }
}

// The stated bound is not vacuous: some input loses at least 1/64 of it (worst cases are rare inputs).
TEST_P(ErrorSuite, ErrorIsNearTheStatedBound) {
  if (!codec.traits.contraction) GTEST_SKIP() << "no stated bound";
  double most = 0;
  bool nothing = true;
  for (const std::size_t n : kErrorSizes) {
    const double stated = codec.traits.contraction(settings, n);
    for (const Shape shape : draws::kShapes) {
      const Floats x = draws::of(shape, n);
      if (shape == Shape::kDenormal || std::all_of(x.begin(), x.end(), [](float v) { return v == 0.0F; }))
        continue;
      const double lost = loss(x, arrives(codec, settings, x, 1));
      nothing = nothing && stated == 0;
      if (stated > 0) most = std::max(most, lost / stated);
    }
  }
  EXPECT_TRUE(nothing || most >= 1.0 / 64) << most;
}

double largest_of(const Floats& x) {
  double most = 0;
  for (const float v : x) most = std::max(most, std::abs(double{v}));
  return most;
}

// The largest error in units of the stated bound; `allowed` may add one rounding of the decoded value.
double worst(const Codec& codec, const Settings& settings, const Floats& x, std::uint64_t seed) {
  const Floats sent = arrives(codec, settings, x, seed);
  const double largest = largest_of(x);
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double off = std::abs(double{sent[i]} - double{x[i]});
    const double rounding = ulp(std::max(std::abs(x[i]), std::abs(sent[i])));
    const double stated = codec.traits.error(settings, x[i], largest);
    if (off > rounding) most = std::max(most, stated == 0 ? 1e300 : (off - rounding) / stated);
  }
  return most;
}

TEST_P(ErrorSuite, ErrorPerValueIsAtMostTheStatedBound) {
  if (!codec.traits.error) GTEST_SKIP() << "no stated bound";
  double most = 0;
  bool bounded = false;
  for (const std::size_t n : kErrorSizes)
    for (const Shape shape : draws::kShapes) {
      const Floats x = draws::of(shape, n);
      bounded = bounded || std::isfinite(codec.traits.error(settings, 1, 1));
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const double now = worst(codec, settings, x, seed);
        ASSERT_LE(now, 1) << draws::name(shape) << ", " << n << " values";
        most = std::max(most, now);
      }
    }
  EXPECT_TRUE(!bounded || most >= 0.25) << "the statement is " << 1 / most << " times the observed error";
}

TEST_P(ErrorSuite, ConstantsAreExactIfClaimed) {
  if (!codec.traits.exact_constants || !codec.traits.exact_constants(settings)) GTEST_SKIP() << "no claim";
  for (const std::size_t n : {1U, 33U, 2049U, 65'536U})
    for (const float v : {-0.375F, 0.1F, 3e-5F, -1e30F, 1.1754944e-38F, 3.3e38F})
      for (const std::uint64_t seed : {1U, 2U}) {
        const Floats x(n, v);
        ASSERT_TRUE(same_bits(arrives(codec, settings, x, seed), x)) << n << " times " << v;
      }
}

const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Codecs, ErrorSuite, testing::ValuesIn(error_cases()), kName);

// A stated bound that is slightly too low is detected: on a constant, topk loses exactly the unsent share.
TEST(ErrorSuiteSelfTest, DetectsAnUnstatedLoss) {
  const Codec& topk = *find_codec("topk");
  const Settings settings = defaults(topk);
  const Floats x = draws::of(Shape::kConstant, 65'536);
  const double lost = loss(x, arrives(topk, settings, x, 0));
  EXPECT_GT(lost, 0.999 * topk.traits.contraction(settings, x.size()));
  EXPECT_LE(lost, topk.traits.contraction(settings, x.size()) * (1 + 1e-5));
}

TEST(ErrorSuiteSelfTest, DetectsAnUnstatedError) {
  Codec halved = *find_codec("bf16");
  halved.traits.error = [](const Settings& s, double value, double largest) {
    return 0.9 * find_codec("bf16")->traits.error(s, value, largest);
  };
  EXPECT_GT(worst(halved, defaults(halved), draws::of(Shape::kGaussian, 65'536), 0), 1);
}

TEST(ErrorSuiteSelfTest, DetectsThatOnebitIsInexactForConstants) {
  const Codec& onebit = *find_codec("onebit");
  const Floats x(2049, 0.1F);
  EXPECT_FALSE(same_bits(arrives(onebit, defaults(onebit), x, 0), x));
}

}  // namespace
}  // namespace tithe::conformance
