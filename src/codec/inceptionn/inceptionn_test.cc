// SPDX-License-Identifier: Apache-2.0
#include "codec/inceptionn/inceptionn.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "support/codec_run.h"
#include "support/draws.h"
#include "tithe/seam/catalogue.h"

namespace tithe::inceptionn {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;
using draws::Shape;
using harness::EncodeOutput;
using harness::send;

// 64 copies of the value, so that the SIMD path runs too.
unsigned tag_of(const std::string& spec, float v) {
  const EncodeOutput t = send(spec, Floats(64, v));
  const Split split(t.payload.data(), 64);
  for (std::size_t i = 1; i < 64; ++i) EXPECT_EQ(split.tag(i), split.tag(0));
  return split.tag(0);
}

// Table of the paper's section on the codec: where each class begins.
TEST(Inceptionn, ClassEdgesMatchThePaper) {
  const struct {
    const char* bound;
    int b;
    int middle;
  } cases[] = {{"0.0009765625", 10, -5}, {"0.00390625", 8, -4}, {"0.015625", 6, -3}};
  for (const auto& c : cases)
    for (const char* mode : {"strict", "literal"}) {
      const std::string spec = std::string("inceptionn:bound=") + c.bound + ",mode=" + mode;
      const auto tag = [&](float v) {
        EXPECT_EQ(tag_of(spec, v), tag_of(spec, -v));
        return tag_of(spec, v);
      };
      const float low = std::ldexp(1.0F, -c.b);
      const float middle = std::ldexp(1.0F, c.middle);
      EXPECT_EQ(tag(0.0F), 0U);
      EXPECT_EQ(tag(std::nextafter(low, 0.0F)), 0U) << spec;
      EXPECT_EQ(tag(low), 1U) << spec;
      EXPECT_EQ(tag(std::nextafter(middle, 0.0F)), 1U) << spec;
      EXPECT_EQ(tag(middle), 2U) << spec;
      EXPECT_EQ(tag(std::nextafter(1.0F, 0.0F)), 2U) << spec;
      EXPECT_EQ(tag(1.0F), 3U) << spec;
    }
}

TEST(Inceptionn, BoundsRoundDownToAPowerOfTwo) {
  EXPECT_EQ(send("inceptionn:bound=0.001", {1.0F}).payload[2], 10);
  EXPECT_EQ(send("inceptionn:bound=0.0009765625", {1.0F}).payload[2], 10);
  EXPECT_EQ(send("inceptionn:bound=0.0009", {1.0F}).payload[2], 11);
  EXPECT_EQ(send("inceptionn:bound=0.5", {1.0F}).payload[2], 1);
}

// The two layouts of nine values, byte for byte.
TEST(Inceptionn, BytesOfBothLayouts) {
  const Floats v = {0.0F, 0.01F, -0.5F, -2.0F, 0.0F, 0.03F, 0.25F, 1e-5F, -0.01F};
  // 0.01 in units of 2^-12 is 40.96, 0.03 is 122.88; -0.5 in units of 2^-15 is 16384, 0.25 is 8192.
  const Bytes split = {0,         0,    10,   0,    0b00101010, 1, 0b01001100, 0, 40,  122,
                       0x80 | 40, 0x00, 0xC0, 0x00, 0x20,       0, 0,          0, 0xC0};
  const Bytes burst = {0, 1, 10, 0,    15,  0,    0b11100100, 0b00100100, 40, 0x00,     0xC0,
                       0, 0, 0,  0xC0, 122, 0x00, 0x20,       1,          0,  0x80 | 40};
  EXPECT_EQ(send("inceptionn", v).payload, split);
  EXPECT_EQ(send("inceptionn:layout=burst", v).payload, burst);
  const Floats seen = {0.0F, 40 * 0x1p-12F, -0.5F, -2.0F, 0.0F, 122 * 0x1p-12F, 0.25F, 0.0F, -40 * 0x1p-12F};
  EXPECT_EQ(send("inceptionn", v).values, seen);
  EXPECT_EQ(send("inceptionn:layout=burst", v).values, seen);
}

// Algorithms 2 and 3 as printed: 7 and 15 bits of fixed point, for any bound.
TEST(Inceptionn, LiteralMatchesThePaper) {
  const EncodeOutput t = send("inceptionn:mode=literal", {0.03F, -0.03F, 0.001F, 0.04F, 0.3F});
  EXPECT_EQ(t.values, (Floats{3 * 0x1p-7F, -3 * 0x1p-7F, 0.0F, 1310 * 0x1p-15F, 9830 * 0x1p-15F}));
  EXPECT_EQ(t.payload, (Bytes{1, 0, 10, 0, 0b00111, 0b11000, 3, 0x83, 0, 0x1E, 0x05, 0x66, 0x26}));
}

TEST(Inceptionn, OnlyStrictKeepsItsBound) {
  const float v = std::nextafter(0x1p-7F, 0.0F);  // the smallest value with q = 1 is 2^-7
  EXPECT_EQ(send("inceptionn:mode=literal", {v}).values[0], 0.0F);
  EXPECT_LE(v - send("inceptionn", {v}).values[0], 0x1p-10F);
}

TEST(Inceptionn, StrictKeepsEveryBoundOnEveryKindOfData) {
  for (const Shape kind : draws::kShapes)
    for (const int b : {1, 6, 8, 10, 14, 15, 16, 20, 40, 100})
      for (const char* layout : {"split", "burst"}) {
        const Floats v = draws::of(kind, 5000);
        const double bound = std::ldexp(1.0, -b);
        Spec spec = *parse_spec(std::string("inceptionn:layout=") + layout);
        spec.settings.value[0] = bound;
        const EncodeOutput kept = send(to_string(spec), v);
        for (std::size_t i = 0; i < v.size(); ++i) {
          ASSERT_LE(std::abs(double{v[i]} - double{kept.values[i]}), bound) << name(kind) << " b " << b;
          ASSERT_EQ(kept.values[i] + kept.residual_out[i], v[i]) << name(kind) << " b " << b;
        }
      }
}

// send compares the impls.
TEST(Inceptionn, LiteralIsEqualInEveryImplementation) {
  for (const Shape kind : draws::kShapes)
    for (const int b : {1, 6, 7, 8, 10, 14, 20, 100})
      for (const char* layout : {"split", "burst"}) {
        const Floats v = draws::of(kind, 3333);
        Spec spec = *parse_spec(std::string("inceptionn:mode=literal,layout=") + layout);
        spec.settings.value[0] = std::ldexp(1.0, -b);
        const EncodeOutput kept = send(to_string(spec), v);
        for (std::size_t i = 0; i < v.size(); ++i)
          ASSERT_EQ(kept.values[i] + kept.residual_out[i], v[i]) << name(kind) << b;
      }
}

// With scratch, the check of a burst payload stores block positions for decode.
TEST(Inceptionn, BurstPayloadDecodesWithoutScratch) {
  for (const Shape kind : draws::kShapes)
    for (const std::size_t n : {0U, 15U, 4096U, 9000U, 20'000U}) {
      const EncodeOutput lent = send("inceptionn:layout=burst", draws::of(kind, n));
      const ByteView view(lent.payload);
      for (const Impl& impl : inceptionn_codec.impls) {
        Floats out(n);
        ASSERT_TRUE(impl.decode({}, {&view, 1}, {}, out).ok());
        EXPECT_EQ(out, lent.values) << impl.name << " " << name(kind) << " " << n;
      }
    }
}

TEST(Inceptionn, ManyPayloadsAddUpInOrder) {
  const EncodeOutput t = send("inceptionn", draws::of(Shape::kLaplace, 2100));
  const std::vector<ByteView> many(150, t.payload);
  Floats want(2100, 0.5F);
  for (int k = 0; k < 150; ++k)
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += t.values[i];
  Call call;
  call.settings = defaults(inceptionn_codec);
  const Floats base(2100, 0.5F);
  for (const Impl& impl : inceptionn_codec.impls) {
    Floats out(2100);
    ASSERT_TRUE(impl.decode(call, many, {.base = base.data()}, out).ok());
    EXPECT_EQ(out, want) << impl.name;
  }
}

TEST(Inceptionn, CheckRefusesInvalidPayloads) {
  const auto check = inceptionn_codec.reference().check;
  for (const char* spec : {"inceptionn", "inceptionn:layout=burst"}) {
    const Bytes good = send(spec, {0.1F, -0.01F, 3.0F}).payload;
    EXPECT_TRUE(check({}, 3, good).ok());
    const auto with = [&](std::size_t at, std::uint8_t byte) {
      Bytes p = good;
      p[at] = byte;
      return check({}, 3, p).code();
    };
    EXPECT_EQ(with(0, 2), Code::kCorrupt);
    EXPECT_EQ(with(1, 2), Code::kCorrupt);
    EXPECT_EQ(with(2, 0), Code::kCorrupt);
    EXPECT_EQ(with(2, 101), Code::kCorrupt);
    EXPECT_EQ(with(3, 1), Code::kCorrupt);
    EXPECT_EQ(with(4, 0), Code::kCorrupt);  // fewer bytes than there are
  }
  // A tag past the last value, with a byte of its own.
  Bytes split = send("inceptionn", {0.0F}).payload;
  split[4] = 0b10;
  split.push_back(1);
  EXPECT_EQ(check({}, 1, split).code(), Code::kCorrupt);
  EXPECT_EQ(check({}, 2, split).code(), Code::kOk);
  Bytes burst = send("inceptionn:layout=burst", {0.0F}).payload;
  burst[4] = 3;  // bytes of the block
  burst[6] = 0b0100;
  burst.push_back(1);
  EXPECT_EQ(check({}, 1, burst).code(), Code::kCorrupt);
  EXPECT_EQ(check({}, 2, burst).code(), Code::kOk);
}

}  // namespace
}  // namespace tithe::inceptionn
