// SPDX-License-Identifier: Apache-2.0
#include "codec/rangefloat/rangefloat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/codec_run.h"
#include "support/draws.h"
#include "tithe/seam/spec.h"

namespace tithe::rangefloat {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;
using draws::Shape;
using harness::EncodeOutput;
using harness::send;

// The paper's figure: N = 8, m = 3, eps = 0.125; 0.256 has the code 9 and decodes to 0.25.
TEST(Rangefloat, WorkedExampleOfThePaper) {
  const Codes codes = Codes::of({8, 3}, 0x3E0);
  EXPECT_EQ(std::bit_cast<float>(codes.base << codes.shift), 0.125F);
  EXPECT_EQ(codes.pack(0.256F), 9U);
  EXPECT_EQ(codes.unpack(9), 0.25F);
  EXPECT_EQ(codes.unpack(1), 0.125F);
  EXPECT_EQ(codes.pack(2.0F), 33U);  // of 127 positive codes: the example is not tuned
  EXPECT_EQ(codes.pack(-0.256F), 9U + 127);
  EXPECT_EQ(codes.unpack(9 + 127), -0.25F);
  EXPECT_EQ(codes.unpack(0), 0.0F);
}

// eps in closed form for the range [-1, 1].
TEST(Rangefloat, ClosedFormOfEps) {
  const auto eps = [](int bits, int mantissa) {
    const Codes codes = Codes::ending_at({bits, mantissa}, magnitude(1.0F));
    EXPECT_EQ(codes.unpack(codes.positive), 1.0F);
    EXPECT_EQ(codes.pack(1.0F), codes.positive);
    EXPECT_EQ(codes.pack(5.0F), codes.positive);
    return std::bit_cast<float>(codes.base << codes.shift);
  };
  EXPECT_FLOAT_EQ(eps(10, 3), 1.25F * 0x1p-64F);
  EXPECT_FLOAT_EQ(eps(10, 4), 0x1.2p-32F);
  EXPECT_NEAR(eps(10, 5), 1.6e-5F, 5e-7F);
  EXPECT_NEAR(eps(10, 6), 4.0e-3F, 5e-5F);
  EXPECT_NEAR(eps(10, 7), 0.064F, 6e-4F);
  EXPECT_NEAR(eps(8, 3), 1.9e-5F, 5e-7F);
  EXPECT_NEAR(eps(8, 4), 4.4e-3F, 5e-5F);
  EXPECT_NEAR(eps(8, 5), 0.066F, 5e-4F);
}

TEST(Rangefloat, RoundsToNearestDownToHalfOfEps) {
  const Codes codes = Codes::of({8, 3}, 0x3E0);  // steps of 1/8 of an octave from 0.125 on
  EXPECT_EQ(codes.pack(0.0624F), 0U);
  EXPECT_EQ(codes.pack(0.0625F), 1U);
  EXPECT_EQ(codes.pack(0.125F + 0.0078F), 1U);
  EXPECT_EQ(codes.pack(0.125F + 0.0079F), 2U);
  for (std::uint32_t code = 0; code <= 2 * codes.positive; ++code)
    EXPECT_EQ(codes.pack(codes.unpack(code)), code);
}

TEST(Rangefloat, GivenRangeClampsLargerValues) {
  const EncodeOutput t = send("rangefloat:range=1,mantissa=4", {3.0F, -1.5F, 0.5F, 1.0F});
  EXPECT_EQ(t.values, (Floats{1.0F, -1.0F, 0.5F, 1.0F}));
  EXPECT_EQ(t.residual_out, (Floats{2.0F, -0.5F, 0.0F, 0.0F}));
}

TEST(Rangefloat, EachBlockHasItsOwnRange) {
  Floats v(kBlock + 3, 1024.0F);
  v[kBlock] = 1e-6F;
  v[kBlock + 1] = -1e-6F;
  v[kBlock + 2] = 0.0F;
  const EncodeOutput t = send("rangefloat", v);
  EXPECT_EQ(t.values[0], 1024.0F);
  EXPECT_NEAR(t.values[kBlock], 1e-6F, 0.25e-6F);
  EXPECT_EQ(t.values[kBlock + 1], -t.values[kBlock]);
  EXPECT_EQ(t.values[kBlock + 2], 0.0F);
}

TEST(Rangefloat, PacksAnyNumberOfBits) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  Floats v(kBlock + 77);
  for (float& x : v) x = normal(rng);
  for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
    const EncodeOutput t = send("rangefloat:bits=" + std::to_string(bits), v);
    EXPECT_EQ(t.payload.size(), kHead + kBlockHead + 128U * static_cast<unsigned>(bits) + kBlockHead +
                                    (77U * static_cast<unsigned>(bits) + 7) / 8);
    EXPECT_EQ(t.payload[0], bits);
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      error += std::pow(double{v[i]} - double{t.values[i]}, 2);
      size += std::pow(double{v[i]}, 2);
    }
    EXPECT_LT(error, size * std::pow(4.0, 3.5 - bits)) << bits;
  }
}

// |v - sent| <= max(eps / 2, 2^-(m + 1) |v|), block by block, for every m and the one that is chosen.
TEST(Rangefloat, ErrorsStayWithinTheirBound) {
  for (const Shape kind : draws::kShapes)
    for (int m = 0; m <= 6; ++m) {
      const Floats v = draws::of(kind, 3000);
      const EncodeOutput t = send("rangefloat:mantissa=" + std::to_string(m), v);
      const int chosen = t.payload[1];
      for (std::size_t i = 0; i < v.size(); ++i) {
        const auto base = wire::get<std::uint32_t>(&t.payload[kHead + i / kBlock * block_bytes(8, kBlock)]);
        const double eps = std::bit_cast<float>(base << (23 - chosen));
        const double allowed = std::max(eps / 2, std::ldexp(std::abs(double{v[i]}), -(chosen + 1)));
        ASSERT_LE(std::abs(double{v[i]} - double{t.values[i]}), allowed)
            << name(kind) << " m " << m << " " << i;
        ASSERT_EQ(t.values[i] + t.residual_out[i], v[i]) << name(kind) << " m " << m;
      }
    }
}

TEST(Rangefloat, ChosenMantissaIsTheBestOnTheSample) {
  for (const Shape kind : draws::kShapes) {
    const Floats v = draws::of(kind, 256);  // all of it is the sample
    const auto error = [&](const std::string& spec) {
      const EncodeOutput t = send(spec, v);
      double sum = 0;
      for (std::size_t i = 0; i < v.size(); ++i) sum += std::pow(double{v[i]} - double{t.values[i]}, 2);
      return sum;
    };
    const double chosen = error("rangefloat");
    for (int m = 1; m <= 6; ++m)
      EXPECT_LE(chosen, error("rangefloat:mantissa=" + std::to_string(m))) << name(kind);
  }
}

TEST(Rangefloat, TheLargestFloatsStayFinite) {
  const float most = std::numeric_limits<float>::max();
  const EncodeOutput t = send("rangefloat", Floats(70, -most));
  for (std::size_t i = 0; i < 70; ++i) {
    EXPECT_TRUE(std::isfinite(t.values[i]));
    EXPECT_TRUE(std::isfinite(t.residual_out[i]));
  }
}

TEST(Rangefloat, CheckRefusesInvalidPayloads) {
  const auto check = rangefloat_codec.reference().check;
  const Bytes good = send("rangefloat:bits=5", {0.1F, -0.01F, 3.0F}).payload;
  EXPECT_TRUE(check({}, 3, good).ok());
  const auto with = [&](std::size_t at, std::uint8_t byte) {
    Bytes p = good;
    p[at] = byte;
    return check({}, 3, p).code();
  };
  EXPECT_EQ(with(0, 3), Code::kCorrupt);
  EXPECT_EQ(with(0, 17), Code::kCorrupt);
  EXPECT_EQ(with(1, 0), Code::kCorrupt);
  EXPECT_EQ(with(1, 4), Code::kCorrupt);
  EXPECT_EQ(with(2, 1), Code::kCorrupt);
  EXPECT_EQ(with(kHead + 3, 0x80), Code::kCorrupt);  // base beyond the largest float
  Bytes zero_base = good;
  wire::put(&zero_base[kHead], std::uint32_t{0});
  EXPECT_EQ(check({}, 3, zero_base).code(), Code::kCorrupt);
  EXPECT_EQ(with(good.size() - 1, 0x80), Code::kCorrupt);  // past the fifteenth bit
}

}  // namespace
}  // namespace tithe::rangefloat
