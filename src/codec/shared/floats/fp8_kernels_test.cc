// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/floats/fp8_kernels.h"

#include <cmath>
#include <limits>

#include "support/implementations_agree.h"

namespace tithe::fp8 {
namespace {

using harness::Floats;
using harness::on_every_target;
using harness::Payload;

bool is_number(std::uint8_t format, unsigned code) {
  return (code & 0x7fU) <= (format == E4M3::kNumber ? E4M3::kLargest : E5M2::kLargest);
}

constexpr std::uint8_t kFormats[] = {E4M3::kNumber, E5M2::kNumber};

// Previous residuals: 0 with either sign; values in which a code's rounding error vanishes; values that turn denormal
// with it.
constexpr float kResidualOut[] = {0.0F, -0.0F, 1.5F, -1e30F, 1e-38F, -3e-40F, 0x1.fffffep127F};

void expect_equal_sums(std::uint8_t format, const Payload& scales, const Payload& a, const Payload& b) {
  Floats before(a.size());
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = kResidualOut[i / 7 % std::size(kResidualOut)];
  Payload want = a, got = a, alone = a;
  Floats residual_out = before, got_residual_out = before;
  kReference.add(format, a.size(), scales.data(), want.data(), b.data(), residual_out.data());
  kSimd.add(format, a.size(), scales.data(), got.data(), b.data(), got_residual_out.data());
  kSimd.add(format, a.size(), scales.data(), alone.data(), b.data(), nullptr);
  EXPECT_TRUE(got == want);
  EXPECT_TRUE(alone == want);
  EXPECT_TRUE(harness::same_values(got_residual_out, residual_out));
}

// All 65536 pairs except those with a NaN or Inf in `in`; with finite codes in acc, and with all codes.
TEST(Fp8Kernels, SumsOfTwoCodesEqualTheReference) {
  for (const std::uint8_t format : kFormats)
    for (const bool numbers : {true, false}) {
      SCOPED_TRACE(std::to_string(format) + (numbers ? " numbers" : " all codes"));
      Payload a, b, scales;
      for (unsigned x = 0; x < 256; ++x)
        for (unsigned y = 0; y < 256; ++y)
          if (is_number(format, y) && (!numbers || is_number(format, x))) {
            a.push_back(static_cast<std::uint8_t>(x));
            b.push_back(static_cast<std::uint8_t>(y));
          }
      const std::uint32_t several[] = {kMinScale, 60, 127, 128, max_scale(format)};
      for (std::size_t i = 0; i < blocks(a.size()); ++i)
        scales.push_back(static_cast<std::uint8_t>(several[i % std::size(several)]));
      on_every_target([&] { expect_equal_sums(format, scales, a, b); });
    }
}

TEST(Fp8Kernels, SumsEndWithThePayload) {
  for (const std::size_t n : {0, 1, 31, 32, 33, 63, 64, 1023, 1024, 1025, 1056, 2100}) {
    Payload a(n), b(n);
    const Payload scales(blocks(n), 100);
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = static_cast<std::uint8_t>(i * 37 & 0xbfU);
      b[i] = static_cast<std::uint8_t>(i * 11 & 0xbfU);
    }
    SCOPED_TRACE(n);
    for (const std::uint8_t format : kFormats)
      on_every_target([&] { expect_equal_sums(format, scales, a, b); });
  }
}

// Every code, the midpoint to the next code, and the floats next to both; beyond the largest code, and non-finite
// values.
template <typename Float>
Floats around_codes() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Floats v = {kInf, std::numeric_limits<float>::quiet_NaN()};
  for (std::uint32_t code = 0; code <= Float::kLargest; ++code) {
    const float at = Float::unpack(static_cast<std::uint8_t>(code));
    const float step = at - Float::unpack(static_cast<std::uint8_t>(code == 0 ? 0 : code - 1));
    for (const float x : {at, at - step / 2, at + step / 2, at + 4 * step})
      for (const float y : {x, std::nextafter(x, kInf), std::nextafter(x, -kInf)}) v.push_back(std::fabs(y));
  }
  const std::size_t half = v.size();
  for (std::size_t i = 0; i < half; ++i) v.push_back(-v[i]);
  return v;
}

// With scales that fit and scales that are too small: larger values saturate.
template <typename Float>
void expect_equal_codes() {
  const Floats units = around_codes<Float>();
  for (const std::uint32_t scale : {kMinScale, 100U, 127U, 200U, Float::kMaxScale - 21, Float::kMaxScale - 20,
                                    Float::kMaxScale - 19, Float::kMaxScale}) {
    Floats v;
    for (const float unit : units) v.push_back(unit * scale_value(scale));
    for (const std::uint32_t under : {scale, scale - 1, scale - 3, scale + 1}) {
      if (under < kMinScale || under > Float::kMaxScale) continue;
      const Payload scales(blocks(v.size()), static_cast<std::uint8_t>(under));
      SCOPED_TRACE(std::to_string(scale) + " under " + std::to_string(under));
      Payload want(v.size()), got(v.size());
      Floats residual_out(v.size()), got_residual_out(v.size());
      kReference.send(Float::kNumber, {v.data(), nullptr, residual_out.data(), v.size()}, scales.data(),
                      want.data());
      on_every_target([&] {
        EXPECT_FALSE(kSimd.send(Float::kNumber, {v.data(), nullptr, got_residual_out.data(), v.size()},
                                scales.data(), got.data()));
        EXPECT_TRUE(got == want);
        EXPECT_TRUE(harness::same_values(got_residual_out, residual_out));
      });
    }
  }
}

TEST(Fp8Kernels, RoundingEqualsTheReference) {
  expect_equal_codes<E4M3>();
  expect_equal_codes<E5M2>();
}

// Blocks with scales from the smallest to the largest, next to blocks with non-finite values.
TEST(Fp8Kernels, BlocksOfAnySizeEqualTheReference) {
  Floats v = harness::odd(4096, true, 1);
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = std::ldexp(0.3F + static_cast<float>(i % 31) / 16, static_cast<int>(i / kBlock) * 2 - 128);
  for (const std::size_t bad : {std::size_t{0}, std::size_t{1000}, v.size()}) {
    if (bad != 0 && bad < v.size()) v[bad] = -std::numeric_limits<float>::infinity();
    for (const std::uint8_t format : kFormats) {
      Payload scales(blocks(v.size())), codes(v.size()), got_scales = scales, found_scales = scales,
                                                         got = codes;
      Floats residual_out(v.size()), got_residual_out = residual_out;
      const bool finite = kReference.encode(format, {v.data(), nullptr, residual_out.data(), v.size()},
                                            scales.data(), codes.data());
      on_every_target([&] {
        EXPECT_EQ(kSimd.encode(format, {v.data(), nullptr, got_residual_out.data(), v.size()},
                               got_scales.data(), got.data()),
                  finite);
        EXPECT_EQ(kSimd.find_scales(format, {v.data(), nullptr, nullptr, v.size()}, found_scales.data()),
                  finite);
        EXPECT_TRUE(got_scales == scales && found_scales == scales && got == codes);
        EXPECT_TRUE(harness::same_values(got_residual_out, residual_out));
      });
    }
  }
}

// The values after the last group of 512, with and without residuals, finite or not.
TEST(Fp8Kernels, TailsEqualTheReference) {
  const Floats grad = harness::odd(1100, true, 1), residual = harness::odd(1100, true, 2);
  for (const std::size_t n :
       {0, 1, 31, 32, 33, 63, 64, 65, 300, 480, 511, 512, 513, 545, 1000, 1023, 1056, 1100})
    for (const std::uint8_t format : kFormats)
      for (const bool owes : {false, true})
        for (const std::size_t bad : {n, n / 2}) {
          SCOPED_TRACE(std::to_string(n) + " values, format " + std::to_string(format));
          Floats v(grad.begin(), grad.begin() + static_cast<std::ptrdiff_t>(n));
          if (bad < n) v[bad] = std::numeric_limits<float>::quiet_NaN();
          const float* from = owes ? residual.data() : nullptr;
          Payload scales(blocks(n)), codes(n), sent(n);
          Floats residual_out(n), sent_residual(n);
          const bool finite = kReference.encode(format, {v.data(), from, residual_out.data(), n},
                                                scales.data(), codes.data());
          kReference.send(format, {v.data(), from, sent_residual.data(), n}, scales.data(), sent.data());
          on_every_target([&] {
            Payload got_scales(blocks(n)), found(blocks(n)), got(n), got_sent(n);
            Floats got_residual_out(n), got_sent_residual(n);
            EXPECT_EQ(kSimd.encode(format, {v.data(), from, got_residual_out.data(), n}, got_scales.data(),
                                   got.data()),
                      finite);
            EXPECT_EQ(kSimd.find_scales(format, {v.data(), from, nullptr, n}, found.data()), finite);
            EXPECT_EQ(kSimd.send(format, {v.data(), from, got_sent_residual.data(), n}, scales.data(),
                                 got_sent.data()),
                      finite);
            EXPECT_TRUE(got_scales == scales && found == scales && got == codes && got_sent == sent);
            EXPECT_TRUE(harness::same_values(got_residual_out, residual_out) &&
                        harness::same_values(got_sent_residual, sent_residual));
          });
        }
}

TEST(Fp8Kernels, DecodedCodesEqualTheReference) {
  for (const std::uint8_t format : kFormats) {
    const std::size_t n = 256 * 4 + 5;
    Payload p(bytes(n));
    p[0] = format;
    for (std::size_t b = 0; b < blocks(n); ++b)
      p[kHead + b] = static_cast<std::uint8_t>(kMinScale + b * (max_scale(format) - kMinScale) / blocks(n));
    for (std::size_t i = 0; i < n; ++i) p[kHead + blocks(n) + i] = static_cast<std::uint8_t>(i);
    Payload other = p;
    other[0] = format ^ 1U;
    for (std::size_t b = 0; b < blocks(n); ++b) other[kHead + b] = 120;
    const ByteView views[] = {p, p, other};
    for (const std::size_t count : {1U, 2U, 3U}) {
      Floats want(n), got(n);
      kReference.decode(std::span(views).first(count), {}, want);
      on_every_target([&] {
        kSimd.decode(std::span(views).first(count), {}, got);
        EXPECT_TRUE(harness::same_values(got, want)) << count;
      });
    }
  }
}

}  // namespace
}  // namespace tithe::fp8
