// SPDX-License-Identifier: Apache-2.0
// Every sparsifier's fast form against its reference: payload bytes, residual bits, verdict.
#include "codec/shared/sparse/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "codec/shared/sparse/select_simd.h"
#include "support/sparse_output.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sparse {
namespace {

using harness::encode;
using harness::name;
using Values = std::vector<float>;

struct Data {
  const char* name;
  void (*fill)(std::mt19937&, Values&);
};

constexpr Data kData[] = {
    {"gaussian",
     [](std::mt19937& r, Values& v) {
       std::normal_distribution<float> draw;
       for (float& x : v) x = draw(r);
     }},
    {"heavy tail",
     [](std::mt19937& r, Values& v) {
       std::normal_distribution<float> draw;
       for (float& x : v) x = 1e-3F * std::pow(draw(r), 5.0F);
     }},
    {"constant", [](std::mt19937&, Values& v) { std::fill(v.begin(), v.end(), -0.5F); }},
    {"zero", [](std::mt19937&, Values& v) { std::fill(v.begin(), v.end(), -0.0F); }},
    {"few levels",
     [](std::mt19937& r, Values& v) {
       for (float& x : v) x = static_cast<float>(static_cast<int>(r() % 7) - 3);
     }},
    {"mostly zero",
     [](std::mt19937& r, Values& v) {
       for (float& x : v) x = r() % 1000 == 0 ? static_cast<float>(r() % 100) : 0.0F;
     }},
    {"growing",
     [](std::mt19937&, Values& v) {  // each segment is larger than all before: lists overflow
       for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i) * (i % 2 ? 1.0F : -1.0F);
     }},
    {"shrinking",
     [](std::mt19937&, Values& v) {
       for (std::size_t i = 0; i < v.size(); ++i) v[i] = 1.0F / static_cast<float>(1 + i);
     }},
    {"large values close together",
     [](std::mt19937& r, Values& v) {  // the sample contains none of them, or only them
       std::normal_distribution<float> draw;
       for (float& x : v) x = 1e-20F * draw(r);
       for (std::size_t i = v.size() / 2; i < std::min(v.size(), v.size() / 2 + 700); ++i) v[i] = 1 + draw(r);
     }},
    {"denormal",
     [](std::mt19937& r, Values& v) {
       for (float& x : v) x = static_cast<float>(static_cast<int>(r() % 2001) - 1000) * 1e-45F;
     }},
    {"huge",
     [](std::mt19937& r, Values& v) {
       for (float& x : v) x = (r() % 2 ? 1.0F : -1.0F) * 3e38F / static_cast<float>(1 + r() % 1000);
     }},
};

constexpr const char* kSpecs[] = {"topk",
                                  "topk:ratio=0.001",
                                  "topk:ratio=0.3",
                                  "topk:ratio=1",
                                  "dgc",
                                  "dgc:ratio=0.001,cap=1",
                                  "dgc:ratio=0.4,cap=100",
                                  "dgc:ratio=1",
                                  "dgc:ratio=0.25,sample=1",
                                  "dragonn",
                                  "dragonn:ratio=0.001",
                                  "dragonn:ratio=1,slots=1",
                                  "randomk",
                                  "randomk:ratio=0.3,values=4bit",
                                  "threshold",
                                  "threshold:tau=0.5",
                                  "graddrop",
                                  "graddrop:ratio=0.3,sample=1",
                                  "dragonn:slots=0.25"};

constexpr std::size_t kSizes[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 500, 1023, 1025, 4097, 65537, 150'001};

class FastEqualsReference : public testing::TestWithParam<const char*> {};

TEST_P(FastEqualsReference, OnEveryKindOfData) {
  Result<Spec> spec = parse_spec(GetParam());
  ASSERT_TRUE(spec.ok()) << spec.status().what();
  const Codec& codec = *spec->codec;
  std::mt19937 rng(11);
  std::size_t turn = 0;  // of large sizes, for which not every combination of data and residual mode is run
  for (const Data& data : kData)
    for (const std::size_t n : kSizes) {
      Values grad(n);
      data.fill(rng, grad);
      Values residual = grad;
      std::shuffle(residual.begin(), residual.end(), rng);
      for (float& x : residual) x *= 0.25F;
      Call call{.settings = spec->settings, .seed = rng(), .round = static_cast<std::uint32_t>(rng() % 120)};
      const bool large = n > 5000;
      for (const harness::Keep keep : harness::kAllKeeps) {
        if (large && turn++ % 3 != 0) continue;
        SCOPED_TRACE(std::string(data.name) + ", n " + std::to_string(n) + ", " + name(keep) + ", seed " +
                     std::to_string(call.seed));
        const harness::EncodeOutput want = encode(codec, codec.reference(), call, grad, residual, keep);
        EXPECT_TRUE(want.finite);
        EXPECT_TRUE(codec.reference().check(call, n, want.payload).ok());
        for (const Impl& impl : codec.impls)
          if (&impl != &codec.reference())
            expect_same(encode(codec, impl, call, grad, residual, keep), want, impl.name);
        if (HasFailure()) return;
      }
    }
}

TEST_P(FastEqualsReference, ReportsNonFiniteValuesAnywhere) {
  Result<Spec> spec = parse_spec(GetParam());
  ASSERT_TRUE(spec.ok()) << spec.status().what();
  const Codec& codec = *spec->codec;
  for (const std::size_t n : {std::size_t{1}, std::size_t{70}, std::size_t{70'000}})
    for (const float bad : {std::nanf(""), -std::nanf(""), INFINITY, -INFINITY})
      for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
        Values grad(n, 1);
        grad[at] = bad;
        for (const Impl& impl : codec.impls)
          EXPECT_FALSE(
              encode(codec, impl, {.settings = spec->settings}, grad, grad, harness::Keep::kInPlace).finite)
              << impl.name << " " << bad << " at " << at << " of " << n;
      }
}

INSTANTIATE_TEST_SUITE_P(Specs, FastEqualsReference, testing::ValuesIn(kSpecs));

TEST(Select, KthLargestEqualsSortedMagnitudes) {
  std::mt19937 rng(3);
  for (const Data& data : kData)
    for (const std::size_t n : {1U, 2U, 100U, 257U, 5000U, 40'000U}) {
      Values v(n);
      data.fill(rng, v);
      std::vector<std::uint32_t> sorted(n);
      std::transform(v.begin(), v.end(), sorted.begin(), magnitude);
      std::sort(sorted.begin(), sorted.end(), std::greater<>{});
      std::vector<std::uint32_t> work(n + select::kSlack);
      for (const std::size_t k : {std::size_t{1}, std::size_t{17}, n / 100, n / 3, n}) {
        if (k < 1 || k > n) continue;
        EXPECT_EQ(select::kth_largest(v.data(), n, k, 0, work.data()), sorted[k - 1])
            << data.name << ", " << k << " of " << n;
        EXPECT_EQ(select::kth_largest(v.data(), n, k, sorted.back(), work.data()), sorted[k - 1])
            << data.name << ", " << k << " of " << n << " with a floor";
      }
    }
}

TEST(Sample, LinesAreStratifiedAndDifferByKey) {
  const select::Sample sample = select::plan_sample(1'000'003, 0.01, 0.01);
  ASSERT_FALSE(sample.whole());
  EXPECT_NEAR(static_cast<double>(sample.count()), 10'000, 16);
  std::size_t equal = 0;
  for (std::size_t j = 0; j < sample.lines; ++j) {
    // A stratum is a share of the full lines, and a line never extends past the last of them.
    constexpr std::size_t kLines = 1'000'003 / select::kLine;
    const std::size_t line = sample.line(1, j);
    ASSERT_EQ(line % select::kLine, 0U);
    EXPECT_GE(line / select::kLine, j * kLines / sample.lines) << j;
    EXPECT_LT(line / select::kLine, (j + 1) * kLines / sample.lines) << j;
    equal += line == sample.line(2, j);
  }
  EXPECT_LT(equal, sample.lines / 10);
  EXPECT_TRUE(select::plan_sample(1000, 0.01, 0.01).whole());
}

}  // namespace
}  // namespace tithe::sparse
