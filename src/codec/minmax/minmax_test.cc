// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "support/codec_run.h"
#include "support/implementations_agree.h"

namespace tithe {
namespace {

using harness::EncodeOutput;
using harness::send;

// HiPress' layout: bits, tail, min, max, codes from the lowest bit up.
TEST(Minmax, BytesMatchHiPress) {
  const std::vector<float> grad = {-3, -2, -1, 0, -3};
  const EncodeOutput sent = send("minmax", grad);
  EXPECT_EQ(sent.values, grad);
  ASSERT_EQ(sent.payload.size(), 12U);
  EXPECT_EQ(sent.payload[0], 2);
  EXPECT_EQ(sent.payload[1], 1);
  EXPECT_EQ(wire::get<float>(&sent.payload[2]), -3.0F);
  EXPECT_EQ(wire::get<float>(&sent.payload[6]), 0.0F);
  EXPECT_EQ(sent.payload[10], 0xe4);
  EXPECT_EQ(sent.payload[11], 0);
}

// Figure 5 of HiPress: gap = (max - min) / ((1 << bits) - 1), tail = size % (1 << bits).
TEST(Minmax, LiteralMatchesThePaper) {
  const std::vector<float> grad = {-3, -2, -1, 0, -3, -1, 0};
  const EncodeOutput sent = send("minmax:mode=literal", grad);
  EXPECT_EQ(sent.values, grad);
  ASSERT_EQ(sent.payload.size(), 12U);
  EXPECT_EQ(sent.payload[0], 2);
  EXPECT_EQ(sent.payload[1], 3);
  EXPECT_EQ(sent.payload[10], 0xe4);
  EXPECT_EQ(sent.payload[11], 0b11'10'00);
  EXPECT_EQ(send("minmax:mode=literal,bits=1", grad).payload[1], 1);
  EXPECT_EQ(send("minmax:bits=1,feedback=none", grad).payload[1], 7);

  // 16 levels of fp32 arithmetic: 0.1F + 15 * ((0.7F - 0.1F) / 15).
  const float gap = (0.7F - 0.1F) / 15;
  const EncodeOutput nearest = send("minmax:mode=literal,bits=4,round=nearest", {0.1F, 0.7F, 0.1F + 4 * gap});
  EXPECT_EQ(nearest.values, (std::vector<float>{0.1F, 0.1F + 15 * gap, 0.1F + 4 * gap}));
}

TEST(Minmax, NearestRoundsToTheNearestLevel) {
  const EncodeOutput sent = send("minmax:bits=1,round=nearest", {0, 0.375F, 0.625F, 1});
  EXPECT_EQ(sent.values, (std::vector<float>{0, 0, 1, 1}));
  EXPECT_EQ(sent.payload[1], 4);
  EXPECT_EQ(sent.payload[10], 0b1100);
}

TEST(Minmax, ConstantsAreSentExactly) {
  for (const char* spec : {"minmax", "minmax:bits=8", "minmax:round=nearest"})
    EXPECT_EQ(send(spec, std::vector<float>(100, -0.3F)).values, std::vector<float>(100, -0.3F));
}

TEST(Minmax, ErrorsAreAtMostAGap) {
  const std::vector<float> grad = harness::bell(5000);
  const auto [low, high] = std::minmax_element(grad.begin(), grad.end());
  for (const int bits : {1, 2, 4, 8}) {
    const double gap = (double{*high} - double{*low}) / ((1 << bits) - 1);
    const std::string spec = "minmax:bits=" + std::to_string(bits);
    for (const float residual_out : send(spec, grad).residual_out)
      EXPECT_LE(std::fabs(residual_out), gap * 1.000001);
    for (const float residual_out : send(spec + ",round=nearest", grad).residual_out)
      EXPECT_LE(std::fabs(residual_out), gap * 0.500001);
  }
}

// A range wider than the largest float is halved; values beyond it keep a residual.
TEST(Minmax, HugeRangesLeaveFiniteValues) {
  constexpr float kMaxFloat = std::numeric_limits<float>::max();
  for (const char* spec : {"minmax", "minmax:bits=1,feedback=none", "minmax:bits=8,round=nearest"}) {
    const std::vector<float> grad = {kMaxFloat, -kMaxFloat, 1e38F, -2e38F, 0};
    const EncodeOutput sent = send(spec, grad);
    for (std::size_t i = 0; i < grad.size(); ++i) {
      EXPECT_TRUE(std::isfinite(sent.residual_out[i])) << spec << i;
      EXPECT_LE(std::fabs(sent.values[i]), kMaxFloat / 2);
    }
  }
}

TEST(Minmax, FastEqualsReferenceOnAnyFloats) {
  for (const std::string bits : {"1", "2", "4", "8"})
    for (const char* round : {"stochastic", "nearest"})
      for (const char* mode : {"strict", "literal"})
        harness::expect_impls_agree("minmax:bits=" + bits + ",round=" + round + ",mode=" + mode);
}

// The end is the first of several zeros, including its sign, on every path.
TEST(Minmax, FirstZeroEndsTheList) {
  for (const float sign : {1.0F, -1.0F})
    for (const std::size_t at : {0, 1, 40, 63, 65, 99})
      for (const float zero : {0.0F, -0.0F}) {
        std::vector<float> grad(100, sign);
        for (std::size_t i = at; i < grad.size(); i += 5) grad[i] = i == at ? zero : -zero;
        const EncodeOutput sent = send("minmax", grad);
        EXPECT_EQ(std::signbit(wire::get<float>(&sent.payload[sign > 0 ? 2 : 6])), std::signbit(zero)) << at;
      }
}

// Values so close to the border of a level, and ranges of such width, that fp32 arithmetic would give another level.
TEST(Minmax, FastCodesEqualBinary64) {
  for (const float range : {1.0F, 0.3F, 3e38F, 1e-30F, 1e-37F, 1e-44F})
    for (const std::string bits : {"1", "2", "4", "8"}) {
      const auto levels = static_cast<float>((1 << std::stoi(bits)) - 1);
      std::vector<float> grad = {-range / 3, range - range / 3};
      for (float k = 0.5F; k < levels; ++k) {
        float v = grad[0] + k * (range / levels);
        for (int step = -8; step < 8; ++step) v = std::nextafter(v, -range);
        for (int step = 0; step < 16; ++step) grad.push_back(v = std::nextafter(v, range));
      }
      SCOPED_TRACE(std::to_string(range) + " " + bits);
      send("minmax:round=nearest,bits=" + bits, grad);
    }
}

TEST(Minmax, CheckRefusesInvalidPayloads) {
  const Spec spec = harness::spec_of("minmax");
  const std::vector<std::uint8_t> good = send("minmax", {-3, -2, -1, 0, -3}).payload;
  const auto with = [&](std::size_t at, std::uint8_t byte) {
    std::vector<std::uint8_t> p = good;
    p[at] = byte;
    return spec.codec->reference().check({.settings = spec.settings}, 5, p).code();
  };
  EXPECT_EQ(with(0, 2), Code::kOk);
  EXPECT_EQ(with(0, 4), Code::kCorrupt);
  EXPECT_EQ(with(1, 2), Code::kCorrupt);
  EXPECT_EQ(with(5, 0x7f), Code::kCorrupt);  // the smallest value rises above the largest
  EXPECT_EQ(with(9, 0xff), Code::kCorrupt);  // the largest falls below the smallest
  EXPECT_EQ(with(11, 4), Code::kCorrupt);    // a code too many
}

}  // namespace
}  // namespace tithe
