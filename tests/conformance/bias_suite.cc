// SPDX-License-Identifier: Apache-2.0
// Codecs that claim no bias have none, at six sigma over 65,536 values and sixteen seeds: neither along a direction,
// nor for values of one magnitude, nor per value. Further tests show that each kind of bias would be detected.
#include <functional>

#include "error_case.h"
#include "tithe/seam/catalogue.h"

namespace tithe::conformance {
namespace {

constexpr int kSeeds = 16;
constexpr std::size_t kN = 65'536;
constexpr int kOctaves = 10;  // octaves below the largest magnitude that are tested separately

using Sends = std::function<Floats(const Floats& x, std::uint64_t seed)>;

// The distance of a sum of independent terms of mean 0 from 0, in standard deviations.
struct Sigmas {
  double sum = 0;
  double squares = 0;
  void add(double term) {
    sum += term;
    squares += term * term;
  }
  double value() const { return squares == 0 ? 0 : std::abs(sum) / std::sqrt(squares); }
};

// The errors of different values are independent, and so are those of different seeds.
double bias_on(const Floats& x, const Sends& sends) {
  double largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(double{v}));
  Sigmas plain, outward, along, octave[kOctaves];
  std::vector<double> sum(x.size()), squares(x.size());
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Floats sent = sends(x, seed);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double d = double{sent[i]} - x[i];
      const double out = x[i] < 0 ? -d : d;
      plain.add(d);
      outward.add(out);
      along.add(d * x[i]);
      const int below = x[i] == 0 ? kOctaves : static_cast<int>(std::log2(largest / std::abs(double{x[i]})));
      if (below < kOctaves) octave[below].add(out);
      sum[i] += d;
      squares[i] += d * d;
    }
  }
  // Products of the errors of one value under two seeds: their mean is its bias squared.
  Sigmas each;
  for (std::size_t i = 0; i < x.size(); ++i) each.add(sum[i] * sum[i] - squares[i]);
  double most = std::max({plain.value(), outward.value(), along.value(), each.value()});
  for (const Sigmas& s : octave) most = std::max(most, s.value());
  return most;
}

double max_bias(const Sends& sends) {
  double most = 0;
  for (const Shape shape : {Shape::kGaussian, Shape::kLaplace, Shape::kConstant})
    most = std::max(most, bias_on(draws::of(shape, kN), sends));
  return most;
}

Sends by(const Codec& codec, const Settings& settings) {
  return
      [&codec, settings](const Floats& x, std::uint64_t seed) { return arrives(codec, settings, x, seed); };
}

class BiasSuite : public testing::TestWithParam<ErrorCase> {};

TEST_P(BiasSuite, UnbiasedWhereClaimed) {
  EXPECT_LE(max_bias(by(*GetParam().codec, GetParam().settings)), 6);
}

std::vector<ErrorCase> claimed() {
  std::vector<ErrorCase> some = error_cases();
  std::erase_if(some, [](const ErrorCase& c) { return !c.codec->traits.unbiased; });
  return some;
}

const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Codecs, BiasSuite, testing::ValuesIn(claimed()), kName);

TEST(BiasSuiteSelfTest, FindsTheBiasOfTopk) {
  const Codec& topk = *find_codec("topk");
  EXPECT_GT(max_bias(by(topk, defaults(topk))), 6);
}

// The negative controls: each unbiased codec with an added bias.
class InjectedBias : public BiasSuite {
 protected:
  const Sends honest = by(*GetParam().codec, GetParam().settings);
};

TEST_P(InjectedBias, OnePercentOfTheErrorIsFound) {
  const Floats x = draws::of(Shape::kLaplace, kN);
  const Floats once = honest(x, 99);
  double squares = 0;
  for (std::size_t i = 0; i < kN; ++i) squares += std::pow(double{once[i]} - x[i], 2);
  const auto shift = static_cast<float>(0.01 * std::sqrt(squares / kN));
  EXPECT_GT(bias_on(x,
                    [&](const Floats& v, std::uint64_t seed) {
                      Floats sent = honest(v, seed);
                      for (float& s : sent) s += shift;
                      return sent;
                    }),
            6);
}

TEST_P(InjectedBias, DrawsThatIgnoreTheSeedAreFound) {
  EXPECT_GT(
      bias_on(draws::of(Shape::kLaplace, kN), [&](const Floats& v, std::uint64_t) { return honest(v, 1); }),
      6);
}

// A bias away from 0 in one octave and towards 0 in the next, without a bias in total.
TEST_P(InjectedBias, ErrorsLimitedToSomeMagnitudesAreFound) {
  EXPECT_GT(bias_on(draws::of(Shape::kLaplace, kN),
                    [&](const Floats& v, std::uint64_t seed) {
                      Floats sent = honest(v, seed);
                      for (std::size_t i = 0; i < v.size(); ++i) {
                        const bool odd = std::ilogb(v[i] == 0 ? 1 : v[i]) % 2 != 0;
                        const float error = sent[i] - v[i];
                        const bool outward = (error > 0) == (v[i] > 0);
                        if (outward == odd) sent[i] -= 0.2F * error;
                      }
                      return sent;
                    }),
            6);
}

INSTANTIATE_TEST_SUITE_P(Codecs, InjectedBias, testing::ValuesIn(claimed()), kName);

}  // namespace
}  // namespace tithe::conformance
