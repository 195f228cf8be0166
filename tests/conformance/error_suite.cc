// SPDX-License-Identifier: Apache-2.0
// What each codec loses in one round, held to what it states in Traits: the contraction factor on inputs of every
// shape, and no bias where none is claimed. The codecs come from codecs.def.
#include <gtest/gtest.h>

#include "codec_case.h"

namespace tithe::conformance {
namespace {

using Floats = std::vector<float>;

constexpr int kSeeds = 16;

enum class Shape { kGaussian, kLaplace, kPowerLaw, kCorrelated, kConstant, kSparse, kDenormal, kHuge };
constexpr Shape kShapes[] = {Shape::kGaussian, Shape::kLaplace, Shape::kPowerLaw, Shape::kCorrelated,
                             Shape::kConstant, Shape::kSparse,  Shape::kDenormal, Shape::kHuge};
constexpr const char* kShapeNames[] = {"gaussian", "laplace", "power law", "correlated",
                                       "constant", "sparse",  "denormal",  "huge"};

Floats draw(Shape shape, std::size_t n) {
  std::mt19937 rng(17);
  std::normal_distribution<float> normal;
  std::exponential_distribution<float> exponential;
  Floats x(n);
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

struct Scratch {
  explicit Scratch(std::size_t bytes)
      : data(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64)), std::free) {}
  std::unique_ptr<std::uint8_t, decltype(&std::free)> data;
};

// What arrives of x when one worker sends it alone, through all phases of the codec.
Floats arrives(const Codec& codec, const Settings& settings, const Floats& x, std::uint64_t seed) {
  const Scratch scratch(codec.scratch(settings, x.size()));
  Call call;
  call.settings = settings;
  call.seed = seed;
  call.shared_seed = seed + 1;
  call.scratch = {scratch.data.get(), codec.scratch(settings, x.size())};
  const Impl& impl = codec.best(this_machine());
  std::vector<std::uint8_t> context, payload;
  for (std::size_t p = 0; p < codec.phases.size(); ++p) {
    std::swap(context, payload);
    payload.assign(codec.phases[p].bound(settings, x.size()), 0);
    call.phase = static_cast<std::uint8_t>(p);
    call.context = context;
    Result<Encoded> done = impl.encode(call, {x.data(), nullptr, nullptr, x.size()}, payload);
    EXPECT_TRUE(done.ok()) << done.status().what();
    if (!done.ok()) return {};
    payload.resize(done->bytes);
  }
  Floats out(x.size());
  const ByteView view = payload;
  const Status s = impl.decode(call, {&view, 1}, {}, out);
  EXPECT_TRUE(s.ok()) << s.what();
  return out;
}

// |C(x) - x|^2 / |x|^2; everything relative to the largest value, so that nothing overflows on the way.
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

struct ErrorCase {
  const Codec* codec;
  Settings settings;
  std::string name;
};

std::vector<ErrorCase> error_cases() {
  std::vector<ErrorCase> all;
  for (const Codec* codec : all_codecs()) {
    all.push_back({codec, defaults(*codec), std::string(codec->name)});
    for (std::size_t p = 0; p < codec->params.size(); ++p) {
      const ParamSpec& param = codec->params[p];
      if (param.name == "values")  // each way to write a value
        for (std::size_t form = 0; form < param.choices.size(); ++form) {
          ErrorCase other = {codec, defaults(*codec),
                             std::string(codec->name) + "_" + std::string(param.choices[form])};
          other.settings.value[p] = static_cast<double>(form);
          all.push_back(other);
        }
      const auto also = [&](const char* what, double value) {
        if (value == param.fallback) return;
        ErrorCase other = {codec, defaults(*codec), std::string(codec->name) + what};
        other.settings.value[p] = value;
        all.push_back(other);
      };
      if (param.name == "ratio") also("_more", 0.25);
      if (param.name == "bits") also("_fewest_bits", param.low);
      if (param.name == "bits") also("_most_bits", param.high);
      if (param.name == "norm") also("_l2", param.high);
    }
  }
  return all;
}

class ErrorSuite : public testing::TestWithParam<ErrorCase> {
 protected:
  const Codec& codec = *GetParam().codec;
  const Settings& settings = GetParam().settings;
};

// Six deviations of the mean over seeds; for a codec without random numbers those are none.
TEST_P(ErrorSuite, LosesAtMostWhatItStates) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{1000}, std::size_t{65'536}})
    for (const Shape shape : kShapes) {
      SCOPED_TRACE(testing::Message() << kShapeNames[static_cast<int>(shape)] << ", " << n << " values");
      const Floats x = draw(shape, n);
      if (std::all_of(x.begin(), x.end(), [](float v) { return v == 0.0F; })) continue;
      double stated = codec.traits.contraction ? codec.traits.contraction(settings, n) : 1.0;
      if (shape == Shape::kDenormal) stated = std::max(stated, 1.0);  // a float's step is not small there
      std::vector<double> losses;
      const auto most_after = [&](int seeds) {
        while (std::ssize(losses) < seeds)
          losses.push_back(loss(x, arrives(codec, settings, x, static_cast<std::uint64_t>(losses.size()))));
        const Mean m = mean_of(losses);
        return m.mean - 6 * m.deviation;
      };
      // Where a few values hold most of the energy, few draws see none of them, and no deviation either.
      if (most_after(kSeeds) <= stated * (1 + 1e-5)) continue;
      EXPECT_LE(most_after(64 * kSeeds), stated * (1 + 1e-5));
    }
}

// How many deviations the errors' sum along a direction lies from zero: errors of different values are independent.
double bias_sigmas(const Codec& codec, const Settings& settings, const Floats& x, const Floats& along) {
  double sum = 0, squares = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Floats sent = arrives(codec, settings, x, static_cast<std::uint64_t>(seed));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double d = (double{sent[i]} - x[i]) * along[i];
      sum += d;
      squares += d * d;
    }
  }
  return squares == 0 ? 0 : std::abs(sum) / std::sqrt(squares);
}

double most_bias(const Codec& codec, const Settings& settings) {
  double most = 0;
  for (const Shape shape : {Shape::kGaussian, Shape::kLaplace, Shape::kConstant}) {
    const Floats x = draw(shape, 65'536);
    Floats signs(x.size()), ones(x.size(), 1.0F);
    for (std::size_t i = 0; i < x.size(); ++i) signs[i] = x[i] < 0 ? -1.0F : 1.0F;
    for (const Floats* along : std::initializer_list<const Floats*>{&ones, &signs, &x})
      most = std::max(most, bias_sigmas(codec, settings, x, *along));
  }
  return most;
}

TEST_P(ErrorSuite, UnbiasedWhereClaimed) {
  if (!codec.traits.unbiased) GTEST_SKIP() << "claims nothing";
  EXPECT_LE(most_bias(codec, settings), 6);
}

const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Codecs, ErrorSuite, testing::ValuesIn(error_cases()), kName);

TEST(ErrorSuiteItself, FindsTheBiasOfTopk) {
  const Codec& topk = *find_codec("topk");
  EXPECT_GT(most_bias(topk, defaults(topk)), 6);
}

}  // namespace
}  // namespace tithe::conformance
