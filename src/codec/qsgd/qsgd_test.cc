// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/levels/qsgd_format.h"
#include "support/agree.h"
#include "support/codec_run.h"

namespace tithe::qsgd {
namespace {

using harness::EncodeOutput;
using harness::send;

constexpr int kWidths[] = {2, 3, 4, 5, 6, 7, 8};

std::string with_bits(int bits) { return "qsgd:bits=" + std::to_string(bits); }

TEST(Qsgd, LevelsAreSentExactly) {
  const std::vector<float> grad = {3, -2, 1, 0, -0.0F};
  const EncodeOutput sent = send("qsgd:bits=3", grad);
  EXPECT_EQ(sent.values, grad);
  ASSERT_EQ(sent.payload.size(), 8U);
  EXPECT_EQ(sent.payload[0], 3);
  EXPECT_EQ(sent.payload[1], 10);  // buckets of 1024
  EXPECT_EQ(wire::get<float>(&sent.payload[2]), 3.0F);
  // Levels 3, -2, 1, 0, 0 and 4 more: 7 | 2 << 3 | 5 << 6 | 4 << 9 | 4 << 12
  EXPECT_EQ(wire::get<std::uint16_t>(&sent.payload[6]), 0x4957);
}

TEST(Qsgd, FourBitsFillBytesFromBelow) {
  const EncodeOutput sent = send("qsgd", {7, -3, 1});
  ASSERT_EQ(sent.payload.size(), 8U);
  EXPECT_EQ(sent.payload[6], 0x5f);
  EXPECT_EQ(sent.payload[7], 0x09);
}

TEST(Qsgd, EqualMagnitudesAreSentExactlyWhateverTheDraws) {
  for (const int bits : kWidths)
    for (const float size : {0.3F, 1.0F, 0.1F, 3e38F, 1e-39F, 7.0F / 3}) {
      std::vector<float> grad(1024);
      for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = i % 3 == 0 ? -size : size;
      for (std::uint32_t round = 0; round < 8; ++round)
        ASSERT_EQ(send(with_bits(bits), grad, round).values, grad) << bits << " bits, " << size;
    }
}

TEST(Qsgd, NothingIsMoreThanAStepAway) {
  const std::vector<float> grad = harness::bell(5000, 1e-3F);
  for (const int bits : kWidths) {
    const EncodeOutput sent = send(with_bits(bits), grad);
    for (std::size_t first = 0; first < grad.size(); first += 1024) {
      const std::size_t end = std::min<std::size_t>(grad.size(), first + 1024);
      float norm = 0;
      for (std::size_t i = first; i < end; ++i) norm = std::max(norm, std::fabs(grad[i]));
      const double step = double{norm} / ((1 << (bits - 1)) - 1);
      for (std::size_t i = first; i < end; ++i)
        EXPECT_LE(std::fabs(sent.residual_out[i]), step * 1.000001) << i;
    }
  }
}

TEST(Qsgd, L2NormIsThatOfTheBucket) {
  const EncodeOutput sent = send("qsgd:norm=l2,bits=8", {3, 4, 0, 0});
  EXPECT_EQ(wire::get<float>(&sent.payload[2]), 5.0F);
  const EncodeOutput huge = send("qsgd:norm=l2", std::vector<float>(1024, 3e38F));
  EXPECT_EQ(wire::get<float>(&huge.payload[2]), std::numeric_limits<float>::max());
}

TEST(Qsgd, EverySettingIsEqualToTheReference) {
  const std::vector<float> grad = harness::bell(4999), residual = harness::bell(4999, 0.5F, 2);
  for (const int bits : kWidths)
    for (const char* more : {"", ",norm=l2", ",bucket=64", ",bucket=8192", ",norm=l2,bucket=256"}) {
      SCOPED_TRACE(with_bits(bits) + more);
      send(with_bits(bits) + more, grad, 1, residual);
    }
}

TEST(Qsgd, CheckRefusesWhatEncodeCannotWrite) {
  const Spec spec = harness::spec_of("qsgd:bits=3");
  const auto check = [&](const std::vector<std::uint8_t>& p) {
    return spec.codec->reference().check({.settings = spec.settings}, 5, p).code();
  };
  const std::vector<std::uint8_t> good = send("qsgd:bits=3", {3, -2, 1, 0, 0}).payload;
  EXPECT_EQ(check(good), Code::kOk);
  std::vector<std::uint8_t> p = good;
  p[0] = 4;
  EXPECT_EQ(check(p), Code::kCorrupt);
  p = good;
  p[1] = 11;
  EXPECT_EQ(check(p), Code::kCorrupt);
  p = good;
  p[7] |= 0x80;
  EXPECT_EQ(check(p), Code::kCorrupt);
  p = good;
  wire::put(&p[2], -1.0F);
  EXPECT_EQ(check(p), Code::kCorrupt);
  p = good;
  p[6] &= 0xf8;  // code 0: below the lowest level
  EXPECT_EQ(check(p), Code::kCorrupt);
  for (const char* text : {"qsgd", "qsgd:bits=8"}) {
    const Spec packed = harness::spec_of(text);
    std::vector<std::uint8_t> codes = send(text, {7, -3, 1}).payload;
    EXPECT_TRUE(packed.codec->reference().check({.settings = packed.settings}, 3, codes).ok());
    codes.back() = 0;
    EXPECT_EQ(packed.codec->reference().check({.settings = packed.settings}, 3, codes).code(), Code::kCorrupt)
        << text;
  }
}

TEST(Qsgd, FastEqualsReferenceOnAnyFloats) {
  for (const int bits : kWidths) harness::expect_impls_agree(with_bits(bits));
}

}  // namespace
}  // namespace tithe::qsgd
