// SPDX-License-Identifier: Apache-2.0
// Every Impl::combine gets payloads that no rank should send, and sums that overflow: all instruction sets give the
// reference's result, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <set>

#include "base/bytes.h"
#include "codec_case.h"
#include "support/codec_run.h"
#include "tithe/seam/catalogue.h"

namespace tithe::conformance {
namespace {

using harness::EncodeOutput;
using harness::Keep;
using harness::Sum;

constexpr std::size_t kFewSizes[] = {1, 33, 257, 2085};
constexpr int kWorkers = 3;

struct ForgedCase {
  std::string label;
  const Codec* codec;
  Settings settings;
  std::size_t n;
};

// Every codec with a phase that combines, at its defaults and in each form of values it has.
std::vector<ForgedCase> forged_cases() {
  std::vector<ForgedCase> all;
  for (const Codec* codec : all_codecs()) {
    if (std::none_of(codec->phases.begin(), codec->phases.end(), [](const Phase& p) { return p.combines(); }))
      continue;
    std::vector<std::pair<std::string, Settings>> ways = {{std::string(codec->name), defaults(*codec)}};
    for (std::size_t p = 0; p < codec->params.size(); ++p) {
      const ParamSpec& param = codec->params[p];
      if (param.name == "ratio")
        for (auto& way : ways) way.second.value[p] = 0.25;
      if (param.name != "values" && param.name != "format") continue;
      for (std::size_t k = 1; k < param.choices.size(); ++k) {
        Settings s = ways.front().second;
        s.value[p] = static_cast<double>(k);
        ways.emplace_back(std::string(codec->name) + "_" + std::string(param.choices[k]), s);
      }
    }
    for (const auto& [name, settings] : ways)
      for (const std::size_t n : kFewSizes)
        all.push_back({name + "_" + std::to_string(n), codec, settings, n});
  }
  return all;
}

// By the reference, and by the fast path on each instruction set.
void each_path(const std::function<void(bool reference)>& body) {
  {
    SCOPED_TRACE("reference");
    body(true);
  }
  harness::on_every_target([&] { body(false); });
}

class ForgedSuite : public testing::TestWithParam<ForgedCase> {
 protected:
  const Codec& codec = *GetParam().codec;
  const std::size_t n = GetParam().n;

  Call call_of(std::uint8_t phase, ByteView context, unsigned worker = 0) const {
    Call call;
    call.settings = GetParam().settings;
    call.seed = 100 + worker;
    call.shared_seed = 9;
    call.phase = phase;
    call.context = context;
    return call;
  }

  EncodeOutput encode(const Impl& impl, const Call& call, const Floats& x, bool keeps, bool& finite) const {
    EncodeOutput sent =
        harness::encode(codec, impl, call, x, {}, keeps ? Keep::kResidualOut : Keep::kNothing);
    finite = finite && sent.finite;
    return sent;
  }

  const Impl& impl_of(bool reference) const { return reference ? codec.reference() : codec.impls.front(); }

  Sum combine(const Impl& impl, const Call& call, const Payload& acc, const Payload& in,
              const Floats& residual_out, bool keeps) const {
    return harness::combine(impl, call, acc, in, residual_out, keeps);
  }

  // The payloads of kWorkers workers in a phase, for ordinary values, and the context from the previous phase.
  struct Stage {
    std::uint8_t phase;
    Payload context;
    std::vector<Payload> sent;
  };
  std::vector<Stage> stages() const {
    std::vector<Stage> all;
    Payload context;
    for (std::uint8_t p = 0; p < codec.phases.size(); ++p) {
      Stage stage{p, context, {}};
      bool finite = true;
      for (unsigned w = 0; w < kWorkers; ++w)
        stage.sent.push_back(
            encode(codec.reference(), call_of(p, context, w), values(Data::kGaussian, n, w), false, finite)
                .payload);
      EXPECT_TRUE(finite);
      context = stage.sent[0];
      if (codec.phases[p].combines())
        for (unsigned w = 1; w < kWorkers; ++w)
          context =
              combine(codec.reference(), call_of(p, stage.context), context, stage.sent[w], Floats(n), false)
                  .acc;
      all.push_back(std::move(stage));
    }
    return all;
  }

  // For any `in`: all paths give the same result; a rejected payload changes nothing, residuals are finite.
  void hold(const Stage& stage, const Payload& in, std::uint32_t ranks) const {
    const Floats before = values(Data::kGaussian, n, 40);
    const Call call = [&] {
      Call c = call_of(stage.phase, stage.context);
      c.ranks = ranks;
      return c;
    }();
    for (const bool keeps : {false, true}) {
      std::optional<Sum> want;
      each_path([&](bool reference) {
        const Sum got = combine(impl_of(reference), call, stage.sent[0], in, before, keeps);
        if (got.code != Code::kOk) {
          ASSERT_TRUE(got.code == Code::kCorrupt || got.code == Code::kUnsupported) << name(got.code);
          ASSERT_EQ(got.acc, stage.sent[0]) << "written to";
          ASSERT_TRUE(same_bits(got.residual_out, before)) << "written to";
        } else if (got.finite) {
          for (const float v : got.residual_out) ASSERT_TRUE(std::isfinite(v));
        }
        if (!want) want = got;
        ASSERT_TRUE(got == *want) << name(got.code) << " " << got.finite;
      });
    }
  }
};

TEST_P(ForgedSuite, CombineRefusesOrReportsNanAndInf) {
  for (const Stage& stage : stages()) {
    if (!codec.phases[stage.phase].combines()) continue;
    SCOPED_TRACE("phase " + std::to_string(stage.phase));
    const Payload& good = stage.sent[1];
    std::set<std::size_t> places;
    for (std::size_t k = 0; k < std::min<std::size_t>(good.size(), 24); ++k) places.insert(k);
    for (std::size_t k = 0; k < 24; ++k) places.insert(good.size() * k / 24);
    for (const std::size_t at : places)
      for (const std::uint32_t bits : {0x7fc00000U, 0xffc00000U, 0x7f800000U, 0xff7fffffU, 0x7fff7fffU}) {
        Payload bad = good;
        for (std::size_t k = 0; k < 4 && at + k < bad.size(); ++k)
          bad[at + k] = static_cast<std::uint8_t>(bits >> 8 * k);
        hold(stage, bad, 0);
        if (HasFatalFailure()) FAIL() << "byte " << at;
      }
  }
}

// If payloads are floats, a NaN in one or both of them is never in the result.
TEST_P(ForgedSuite, CombineOfTwoNansIsReportedByAllImplementations) {
  const bool dense = codec.name == "fp32" || codec.name == "bf16" || codec.name == "fp16";
  if (!dense) GTEST_SKIP() << "no array of floats";
  Stage stage = stages()[0];
  const std::size_t size = stage.sent[0].size() / n;
  for (const bool both : {false, true})
    for (const std::uint8_t sign : {std::uint8_t{0x7f}, std::uint8_t{0xff}})
      for (const std::size_t i : {std::size_t{0}, n / 2, n - 1}) {
        Stage bad = stage;
        std::fill_n(bad.sent[1].begin() + static_cast<std::ptrdiff_t>(i * size), size, std::uint8_t{0xff});
        if (both) {
          std::fill_n(bad.sent[0].begin() + static_cast<std::ptrdiff_t>(i * size), size, std::uint8_t{0xff});
          bad.sent[0][(i + 1) * size - 1] = sign;
        }
        EXPECT_FALSE(
            combine(codec.reference(), call_of(0, {}), bad.sent[0], bad.sent[1], Floats(n), true).finite);
        hold(bad, bad.sent[1], 0);
      }
}

TEST_P(ForgedSuite, CombineRefusesOtherSizes) {
  for (const Stage& stage : stages()) {
    if (!codec.phases[stage.phase].combines()) continue;
    const Payload &acc = stage.sent[0], &good = stage.sent[1];
    const Call call = call_of(stage.phase, stage.context);
    for (const std::size_t size : {std::size_t{0}, good.size() - 1, good.size() + 1, good.size() + 64}) {
      Payload other = good;
      other.resize(size);
      hold(stage, other, 0);
      EXPECT_EQ(combine(codec.impls.front(), call, acc, other, Floats(n), true).code, Code::kCorrupt) << size;
      const Sum made = combine(codec.impls.front(), call, other, good, Floats(n), true);
      EXPECT_EQ(made.code, Code::kCorrupt) << size;
      EXPECT_EQ(made.acc, other) << size;
    }
  }
}

// A rank that counts itself twice would have two votes: a count in a payload cannot exceed the number of ranks.
TEST_P(ForgedSuite, CombineRefusesMoreRanksThanTakePart) {
  const bool counts = codec.name == "sign_majority" || codec.name == "thc" || codec.name == "fp8_shared" ||
                      codec.name == "terngrad_shared" || codec.name == "qsgd_shared";
  for (const Stage& stage : stages()) {
    if (!codec.phases[stage.phase].combines()) continue;
    const Call call = call_of(stage.phase, stage.context);
    const Payload two = combine(codec.reference(), call, stage.sent[1], stage.sent[2], Floats(n), false).acc;
    hold(stage, two, 2);
    hold(stage, two, 3);
    Call few = call, enough = call;
    few.ranks = 2;
    enough.ranks = 3;
    EXPECT_EQ(combine(codec.impls.front(), enough, stage.sent[0], two, Floats(n), true).code, Code::kOk);
    // The codes of fp8_shared and the scales of sign_majority contain no count.
    if (counts && (stage.phase == 0 || (codec.name != "fp8_shared" && codec.name != "sign_majority"))) {
      EXPECT_EQ(combine(codec.impls.front(), few, stage.sent[0], two, Floats(n), true).code, Code::kCorrupt);
    }
  }
}

// Three ranks with values at the limits of the float range: all paths report the round alike, or residual_out is
// finite and taken == sent + residual_out. At the lower limit nothing may be reported.
TEST_P(ForgedSuite, ThreeRanksWithExtremeFloats) {
  for (const Extreme kind : kExtremes) {
    SCOPED_TRACE(name(kind));
    std::vector<Floats> x;
    for (unsigned w = 0; w < kWorkers; ++w) x.push_back(extremes(kind, n, w));
    struct Outcome {
      bool finite = true;
      Payload sum;
      std::vector<Floats> residual_out;
      Floats result;
    };
    std::optional<Outcome> want;
    each_path([&](bool reference) {
      const Impl& impl = impl_of(reference);
      Outcome got;
      got.residual_out.assign(kWorkers, Floats(n));
      Payload context;
      for (std::uint8_t p = 0; p < codec.phases.size() && got.finite; ++p) {
        const bool last = p + 1U == codec.phases.size();
        std::vector<Payload> sent;
        for (unsigned w = 0; w < kWorkers; ++w) {
          EncodeOutput mine = encode(impl, call_of(p, context, w), x[w], last, got.finite);
          sent.push_back(std::move(mine.payload));
          if (last) got.residual_out[w] = std::move(mine.residual_out);
        }
        got.sum = sent[0];
        for (unsigned w = 1; w < kWorkers && got.finite && codec.phases[p].combines(); ++w) {
          const Sum made = combine(impl, call_of(p, context), got.sum, sent[w], got.residual_out[0], last);
          ASSERT_EQ(made.code, Code::kOk);
          got.finite = made.finite;
          got.sum = made.acc;
          got.residual_out[0] = made.residual_out;
        }
        if (!last) context = got.sum;
      }
      if (kind == Extreme::kBottom) {
        ASSERT_TRUE(got.finite);
      }
      if (got.finite) {
        for (const Floats& residual_out : got.residual_out)
          for (const float v : residual_out) ASSERT_TRUE(std::isfinite(v));
        const Call call = call_of(phases::last_phase(codec), context);
        got.result = harness::decode_one(codec, impl, call, n, got.sum);
        const bool kept =
            std::all_of(got.result.begin(), got.result.end(), [](float v) { return std::isfinite(v); });
        if (kind == Extreme::kBottom) {
          ASSERT_TRUE(kept);
        }
        double most = 0;
        for (const Floats& v : x)
          for (const float value : v) most = std::max(most, std::abs(double{value}));
        for (std::size_t i = 0; i < n && kept; ++i) {
          double balance = -double{got.result[i]}, magnitude = std::abs(double{got.result[i]});
          for (unsigned w = 0; w < kWorkers; ++w) {
            balance += double{x[w][i]} - double{got.residual_out[w][i]};
            magnitude += std::abs(double{x[w][i]}) + std::abs(double{got.residual_out[w][i]});
          }
          if (codec.traits.adds_transformed) magnitude = std::max(magnitude, 8 * most);
          ASSERT_LE(std::abs(balance), 16 * 0x1p-24 * magnitude + 4e-45) << i;
        }
      }
      if (!want) want = got;
      ASSERT_EQ(got.finite, want->finite);
      if (!got.finite) return;
      ASSERT_EQ(got.sum, want->sum);
      for (unsigned w = 0; w < kWorkers; ++w)
        ASSERT_TRUE(same_bits(got.residual_out[w], want->residual_out[w]));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, ForgedSuite, testing::ValuesIn(forged_cases()),
                         [](const auto& param) { return param.param.label; });

}  // namespace
}  // namespace tithe::conformance
