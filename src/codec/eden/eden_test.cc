// SPDX-License-Identifier: Apache-2.0
#include "codec/eden/eden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/shared/floats/bf16_format.h"
#include "support/codec_run.h"
#include "support/targets.h"
#include "tithe/seam/catalogue.h"

namespace tithe::eden {
namespace {

using harness::bell;
using harness::Floats;
using harness::Payload;
using harness::send;
using harness::squares;

std::string word(const Levels& levels) { return levels.bits == kThree ? "1.6" : std::to_string(levels.bits); }
std::string spec(const Levels& levels, const char* scale = "fit") {
  return "eden:bits=" + word(levels) + ",scale=" + scale;
}
const Levels& of_bits(unsigned bits) {
  return *std::find_if(kLevels.begin(), kLevels.end(), [bits](const Levels& l) { return l.bits == bits; });
}
unsigned codes_of(const Levels& levels) { return levels.bits == kThree ? 3 : 1U << levels.bits; }

double lost(const Floats& x, const Floats& sent) {
  Floats error(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) error[i] = x[i] - sent[i];
  return squares(error) / squares(x);
}

// On average over draws of the signs; residuals are not carried from one to the next.
double mean_lost(const Levels& levels, const Floats& x, std::uint32_t rounds) {
  double sum = 0;
  for (std::uint32_t round = 0; round < rounds; ++round) sum += lost(x, send(spec(levels), x, round).values);
  return sum / rounds;
}

double stated(const Levels& levels) {
  return eden_codec.traits.contraction(harness::spec_of(spec(levels)).settings, 1000);
}

// ---- The stated loss

// All energy of such a block is in one rotated value of 32 standard deviations.
TEST(Eden, BlockThatRotatesIntoOneValueMatchesTheReference) {
  Floats x(kBlock);
  for (std::size_t i = 0; i < kBlock; ++i) x[i] = rotation::turned(1.0F, 5, i);
  const EncodeInput in = {x.data(), nullptr, nullptr, kBlock};
  for (const Levels& levels : kLevels) {
    const Coder coder = {levels, false, 5, 6};
    const Block block = Block::at(0, kBlock);
    Payload want(kHead + block.bytes(levels)), got = want;
    EXPECT_TRUE(encode_block(coder, block, in, &want[kHead]));
    bool finite = true;
    if (kSimd.encode(coder, in, got.data(), finite) == 0) got = want;  // a machine without vectors
    EXPECT_EQ(got, want) << word(levels) << " bits";
    EXPECT_GT(levels.level(get_code(&want[kHead + kScaleBytes], levels, kBlock, 0)), 0) << word(levels);
  }
}

TEST(Eden, RotatedValuesStayWithinTheirMajorant) {
  for (std::size_t which = 1; which < kLevels.size(); ++which) {
    const Levels& levels = kLevels[which];
    const Majorant& m = kMajorants[which - 1];
    for (const double step : {1.0 / 4096, 1.0 / 3})
      for (double z = 0; z < (step > 0.1 ? 33 : 8); z += step) {
        const double q = levels.level(levels.code(steps_of(static_cast<float>(z), kSteps)));
        EXPECT_GE(q, 0) << z;
        const double off = (z - m.s * q) * (z - m.s * q), square = z * z;
        ASSERT_LE(off, m.a + square * (m.b + square * (m.c + square * m.d)) + 1e-9)
            << spec(levels) << ", " << z;
      }
  }
}

// By quadrature of the normal density. The least error of 2, 3, 4, 8 and 16 levels is Max's (1960).
TEST(Eden, LevelsAreWithinOnePercentOfOptimalForNormalValues) {
  constexpr double kMinLoss[] = {0.3634, 0.1902, 0.1175, 0.03454, 0.009497};
  for (std::size_t which = 0; which < kLevels.size(); ++which) {
    const Levels& levels = kLevels[which];
    double with_values = 0, with_itself = 0, all = 0;
    for (double z = 1.0 / 2048; z < 8; z += 1.0 / 1024) {
      const double density = std::exp(-z * z / 2);
      const double q = levels.level(levels.code(steps_of(static_cast<float>(z), kSteps)));
      all += density * z * z;
      with_values += density * z * q;
      with_itself += density * q * q;
    }
    const double loss = 1 - with_values * with_values / (all * with_itself);
    EXPECT_NEAR(loss, kMinLoss[which], 0.01 * kMinLoss[which]) << spec(levels);
  }
}

TEST(Eden, NormalValuesHaveTheStatedError) {
  constexpr double kSaid[] = {0.364, 0.190, 0.118, 0.0347, 0.0097};
  const Floats x = bell(16 * kBlock, 0.01F);
  for (std::size_t which = 0; which < kLevels.size(); ++which) {
    const double loss = mean_lost(kLevels[which], x, 2);
    EXPECT_LT(loss, 1.02 * kSaid[which]) << which;
    EXPECT_GT(loss, 0.95 * kSaid[which]) << which;
  }
}

// The inputs with the largest loss that a search by steps has found: a few nonzero values, whose rotated values have
// few magnitudes, exactly at the borders of levels. Their loss is close to the stated bound and below it.
TEST(Eden, WorstKnownInputsStayBelowTheStatedError) {
  const struct {
    unsigned bits;
    std::vector<float> few;
    double loses;
  } worst[] = {{1, {1, 1}, 0.5},
               {kThree, {0.6243F, 0.5528F, 0.552F}, 0.307},
               {2, {0.4842F, 0.5153F, 0.4842F, 0.5153F}, 0.2132},
               {3, {0.501F, 0.612F, 0.612F}, 0.0686},
               {4, {0.1558F, 0.1558F, 0.1554F, 0.1559F, 0.1558F, 0.9374F}, 0.0205}};
  for (const auto& w : worst) {
    Floats x(kBlock);
    for (std::size_t k = 0; k < w.few.size(); ++k) x[37 * k + 5] = w.few[k];
    const double loss = mean_lost(of_bits(w.bits), x, 64);
    EXPECT_LT(loss, stated(of_bits(w.bits))) << w.bits;
    EXPECT_NEAR(loss, w.loses, 0.1 * w.loses) << w.bits;
  }
}

// A single nonzero value is sent exactly up to the 8 bits of the scale, and a constant has the loss of normal values.
TEST(Eden, SingleValueIsSentAndConstantsAreOrdinary) {
  Floats one(kBlock);
  one[700] = -3.7F;
  for (const Levels& levels : kLevels) {
    EXPECT_LT(lost(one, send(spec(levels), one).values), 0x1p-15) << word(levels);
    EXPECT_LT(mean_lost(levels, Floats(kBlock, 0.3F), 64), 1.1 * mean_lost(levels, bell(kBlock), 64))
        << word(levels);
  }
}

// Two equal values alone lose half in each round of one bit; with feedback all of it arrives in time.
TEST(Eden, FeedbackSendsEverythingEventually) {
  for (const unsigned bits : {1U, kThree, 2U, 4U}) {
    Floats x(kBlock), residual(kBlock), total(kBlock);
    x[5] = x[42] = 1;
    x[77] = 0.01F;
    constexpr std::uint32_t kRounds = 200;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const harness::EncodeOutput sent = send(spec(of_bits(bits)), x, round, residual);
      for (std::size_t i = 0; i < kBlock; ++i) total[i] += sent.values[i];
      residual = sent.residual_out;
    }
    EXPECT_LT(squares(residual), 8 * squares(x)) << bits;  // bounded, for any number of rounds
    for (float& v : total) v /= kRounds;
    EXPECT_LT(lost(x, total), 4e-4) << bits;
  }
}

// No draw of the signs makes 1 bit send the lesser of two, as docs/reference/codecs_each.md warns.
TEST(Eden, OnlyTheSmallerOfTwoValuesNeedsFeedback) {
  Floats x(kBlock);
  x[5] = 1;
  x[900] = -0.75F;
  for (std::uint32_t round = 0; round < 20; ++round) {
    const Floats values = send(spec(of_bits(1), "unbiased"), x, round).values;
    EXPECT_GT(values[5], 1.5F);
    EXPECT_EQ(values[900], 0.0F);
  }
}

// ---- The scale

// With the unbiased scale the mean over rounds is the value; with the fitted scale it is smaller by the loss.
TEST(Eden, UnbiasedScaleHasTheRightMean) {
  const Floats x = bell(16 * kBlock, 0.01F);
  constexpr std::uint32_t kRounds = 48;
  for (const Levels& levels : kLevels)
    for (const bool unbiased : {true, false}) {
      double along = 0;
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        const Floats values = send(spec(levels, unbiased ? "unbiased" : "fit"), x, round).values;
        for (std::size_t i = 0; i < x.size(); ++i) along += double{values[i]} * double{x[i]};
      }
      const double gain = along / (kRounds * squares(x));
      const double short_of = unbiased ? 0 : lost(x, send(spec(levels), x).values);
      EXPECT_NEAR(gain, 1 - short_of, 6e-4 + 0.02 * short_of)
          << word(levels) << (unbiased ? " unbiased" : " fit");
    }
}

// The residual of the fitted scale is orthogonal to the sent block: no other scale has a smaller residual.
TEST(Eden, FittedScaleLeavesTheSmallestResidual) {
  const Floats x = bell(kBlock);
  for (const Levels& levels : kLevels) {
    const harness::EncodeOutput sent = send(spec(levels), x);
    double along = 0;
    for (std::size_t i = 0; i < kBlock; ++i) along += double{sent.values[i]} * double{sent.residual_out[i]};
    EXPECT_LT(std::abs(along), 0x1p-8 * squares(x)) << word(levels);
  }
}

// ---- Payloads

// All sums of a single payload are exact in float: the transform in doubles gives the same values.
TEST(Eden, SinglePayloadIsExact) {
  for (const Levels& levels : kLevels) {
    const harness::EncodeOutput sent = send(spec(levels), bell(kBlock, 1e-3F));
    const std::uint8_t* at = &sent.payload[kHead];
    std::vector<double> y(kBlock);
    for (std::size_t i = 0; i < kBlock; ++i)
      y[i] = double{bf16::Format::unpack(wire::get<std::uint16_t>(at))} *
             levels.level(get_code(at + kScaleBytes, levels, kBlock, i));
    rotation::transform(y.data(), kBlock);
    for (std::size_t i = 0; i < kBlock; ++i) ASSERT_EQ(std::abs(double{sent.values[i]}), std::abs(y[i])) << i;
  }
}

TEST(Eden, CodeBitsDoNotOverlap) {
  for (const Levels& levels : kLevels)
    for (std::size_t width = kMinWidth; width <= kBlock; width *= 2) {
      Payload codes(levels.bytes(width));
      for (std::size_t i = 0; i < width; ++i) {
        const auto code = static_cast<unsigned>(i * 7 + i / 16) % codes_of(levels);
        put_code(codes.data(), levels, width, i, code);
        ASSERT_EQ(get_code(codes.data(), levels, width, i), code);
      }
      for (std::size_t i = 0; i < width; ++i)
        ASSERT_EQ(get_code(codes.data(), levels, width, i),
                  static_cast<unsigned>(i * 7 + i / 16) % codes_of(levels));
    }
}

TEST(Eden, BlocksOfTheTail) {
  const auto widths = [](std::size_t n) {
    std::vector<std::size_t> all;
    each_block(of_bits(4), n, 0, [&](const Block& block, std::size_t) { all.push_back(block.width); });
    return all;
  };
  using W = std::vector<std::size_t>;
  EXPECT_EQ(widths(0), W{});
  EXPECT_EQ(widths(4), W{0});
  EXPECT_EQ(widths(5), W{8});
  EXPECT_EQ(widths(8), W{8});
  EXPECT_EQ(widths(12), (W{8, 0}));
  EXPECT_EQ(widths(13), W{16});
  EXPECT_EQ(widths(600), (W{512, 64, 16, 8}));
  EXPECT_EQ(widths(768), (W{512, 256}));
  EXPECT_EQ(widths(769), W{1024});
  EXPECT_EQ(widths(2048 + 1025), (W{1024, 1024, 1024, 0}));
  for (std::size_t n = 0; n < 3000; ++n) {
    std::size_t next = 0;
    const std::size_t bytes = each_block(of_bits(4), n, 0, [&](const Block& block, std::size_t) {
      ASSERT_EQ(block.first, next);
      ASSERT_EQ(block.width == 0 ? 0 : block.first % block.width, 0U) << "signs are shared by width";
      next += block.values;
    });
    ASSERT_EQ(next, n);
    ASSERT_EQ(bytes, eden_codec.phases[0].bound(harness::spec_of("eden").settings, n));
    // The tail costs a third of its codes and a few bytes more than they.
    ASSERT_LE(bytes, kHead + n / 2 + 2 * (n / kBlock) + n % kBlock / 6 + 32) << n;
  }
}

// Two payloads by hand, in the rotated domain.
TEST(Eden, PayloadsAddBeforeTheyAreRotatedBack) {
  const Call call = harness::call_of("eden:bits=2");
  const Levels& levels = of_bits(2);
  std::vector<Payload> payloads;
  for (const unsigned draw : {1U, 2U})
    payloads.push_back(
        harness::encode(eden_codec, eden_codec.reference(), call, bell(kBlock, 1, draw)).payload);
  std::vector<float> y(kBlock);
  for (const Payload& p : payloads)
    for (std::size_t i = 0; i < kBlock; ++i)
      y[i] += bf16::Format::unpack(wire::get<std::uint16_t>(&p[kHead])) *
              static_cast<float>(levels.level(get_code(&p[kHead + kScaleBytes], levels, kBlock, i)));
  rotation::transform(y.data(), kBlock);
  Floats out(kBlock);
  for (const Impl& impl : eden_codec.impls) {
    ASSERT_TRUE(harness::decode(eden_codec, impl, call, payloads, harness::Base::kNull, {}, 1, out).ok());
    for (std::size_t i = 0; i < kBlock; ++i) ASSERT_EQ(std::abs(out[i]), std::abs(y[i])) << i;
  }
}

TEST(Eden, RanksDrawTheSameSigns) {
  Call call = harness::call_of("eden");
  const Payload a = harness::encode(eden_codec, eden_codec.reference(), call, bell(100)).payload;
  call.shared_seed += 1;
  const Payload b = harness::encode(eden_codec, eden_codec.reference(), call, bell(100)).payload;
  Floats out(100);
  for (const Impl& impl : eden_codec.impls)
    EXPECT_EQ(harness::decode(eden_codec, impl, call, {a, b}, harness::Base::kNull, {}, 1, out).code(),
              Code::kCorrupt);
}

TEST(Eden, CheckRefusesInvalidPayloads) {
  const Call call = harness::call_of("eden:bits=2");
  const std::size_t n = kBlock + 3;  // a block, and values sent uncompressed
  const Payload good = harness::encode(eden_codec, eden_codec.reference(), call, bell(n)).payload;
  const auto with = [&](std::size_t at, auto v) {
    Payload p = good;
    wire::put(&p[at], v);
    return eden_codec.reference().check(call, n, p).code();
  };
  EXPECT_EQ(with(8, std::uint8_t{2}), Code::kOk);
  EXPECT_EQ(with(8, std::uint8_t{3}), Code::kCorrupt);
  EXPECT_EQ(with(9, std::uint8_t{1}), Code::kCorrupt);
  EXPECT_EQ(with(kHead, std::uint16_t{0}), Code::kCorrupt);       // codes, and a scale of 0
  EXPECT_EQ(with(kHead, std::uint16_t{0x8000}), Code::kCorrupt);  // -0
  EXPECT_EQ(with(kHead, std::uint16_t{0xbf80}), Code::kCorrupt);  // -1
  EXPECT_EQ(with(kHead, std::uint16_t{0x7f80}), Code::kCorrupt);
  EXPECT_EQ(with(kHead, std::uint16_t{0x7fc0}), Code::kCorrupt);
  EXPECT_EQ(with(kHead, std::uint16_t{0x0001}), Code::kCorrupt);
  EXPECT_EQ(with(kHead, bf16::Format::pack(kSafeScale)), Code::kOk);
  EXPECT_EQ(with(kHead, bf16::Format::pack(0x1p120F)), Code::kCorrupt);
  EXPECT_EQ(with(good.size() - 4, std::numeric_limits<float>::infinity()), Code::kCorrupt);
  EXPECT_EQ(with(good.size() - 4, 3e38F), Code::kOk);
}

// A byte holds five digits, and the last byte of a block four.
TEST(Eden, CheckRefusesInvalidDigits) {
  const Call call = harness::call_of("eden:bits=1.6");
  const Payload good = harness::encode(eden_codec, eden_codec.reference(), call, bell(kBlock)).payload;
  ASSERT_EQ(good.size(), kHead + kScaleBytes + 205);
  const auto with = [&](std::size_t at, std::uint8_t v) {
    Payload p = good;
    p[at] = v;
    return eden_codec.reference().check(call, kBlock, p).code();
  };
  const std::size_t first = kHead + kScaleBytes, last = good.size() - 1;
  EXPECT_EQ(with(first, 242), Code::kOk);
  EXPECT_EQ(with(first, 243), Code::kCorrupt);
  EXPECT_EQ(with(last - 1, 242), Code::kOk);
  EXPECT_EQ(with(last - 1, 255), Code::kCorrupt);
  EXPECT_EQ(with(last, 80), Code::kOk);
  EXPECT_EQ(with(last, 81), Code::kCorrupt);
}

// The largest scale for its codes: still finite values. A lone value of the rotated block may have it, all may not.
TEST(Eden, CheckedPayloadsDecodeToFiniteValues) {
  for (const Levels& levels : kLevels) {
    const unsigned top = levels.bits == kThree ? 1 : (1U << (levels.bits - 1)) - 1;
    const Call call = harness::call_of(spec(levels));
    Payload p = harness::encode(eden_codec, eden_codec.reference(), call, bell(kBlock)).payload;
    std::fill(p.begin() + kHead + kScaleBytes, p.end(), std::uint8_t{0});
    for (std::size_t i = 0; i < kBlock; ++i) put_code(&p[kHead + kScaleBytes], levels, kBlock, i, top);
    std::uint16_t scale = bf16::Format::pack(kSafeScale);
    const auto taken = [&](std::uint16_t bf16) {
      wire::put(&p[kHead], bf16);
      return eden_codec.reference().check(call, kBlock, p).ok();
    };
    ASSERT_TRUE(taken(scale));
    while (taken(scale + 1)) ++scale;
    ASSERT_TRUE(taken(scale));
    float most = 0;
    for (const float v : harness::decode_one(eden_codec, eden_codec.reference(), call, kBlock, p)) {
      ASSERT_TRUE(std::isfinite(v));
      most = std::max(most, std::abs(v));
    }
    EXPECT_EQ(most, bf16::Format::unpack(scale) * kBlock * levels.size[top]) << word(levels);
    EXPECT_GT(most, std::numeric_limits<float>::max() / 2) << word(levels);
  }
}

// ---- Odd values

TEST(Eden, ZerosAndTinyValuesAreNotSent) {
  for (const float scale : {0.0F, 1e-39F, 1e-32F}) {
    const Floats x = bell(kBlock + 32, scale);
    const harness::EncodeOutput sent = send("eden", x);
    for (const float v : sent.values) ASSERT_EQ(v, 0.0F);
    EXPECT_EQ(sent.residual_out, x);
  }
}

// Values far from 1, whose squares would overflow or underflow, have the usual loss.
TEST(Eden, IsScaleInvariant) {
  const Floats x = bell(kBlock + 64);
  const double ordinary = mean_lost(of_bits(4), x, 4);
  for (const float scale : {1e-28F, 1e-15F, 1e-3F, 1e15F, 1e25F}) {
    Floats y = x;
    for (float& v : y) v *= scale;
    double loss = 0, error = 0;
    for (std::uint32_t round = 0; round < 4; ++round) {
      const Floats values = send("eden", y, round).values;
      for (std::size_t i = 0; i < y.size(); ++i) {
        error = double{y[i]} / scale - double{values[i]} / scale;
        loss += error * error / 4;
      }
    }
    EXPECT_NEAR(loss / squares(x), ordinary, 0.1 * ordinary) << scale;
  }
}

// Too large for sums of several: nearly all of it stays in the residual, and the ledger holds.
TEST(Eden, HugeValuesStayInTheResidual) {
  Floats x = bell(kBlock, 1e37F);
  x[3] = std::numeric_limits<float>::max();
  const harness::EncodeOutput sent = send("eden", x);
  EXPECT_TRUE(sent.finite);
  for (std::size_t i = 0; i < kBlock; ++i) {
    ASSERT_TRUE(std::isfinite(sent.residual_out[i]));
    ASSERT_LT(std::abs(sent.values[i]), 1e30F);
    ASSERT_EQ(sent.residual_out[i], x[i] - sent.values[i]);
  }
}

// ---- All impls

TEST(Eden, EveryBitWidthOnEveryTarget) {
  for (const Levels& levels : kLevels)
    for (const char* scale : {"fit", "unbiased"})
      for (const std::size_t n : {3U, 33U, 800U, 1024U, 2600U})
        harness::on_every_target([&] {
          SCOPED_TRACE(spec(levels, scale) + ", " + std::to_string(n));
          const Floats residual = bell(n, 0.5F, 3);
          Floats odd = harness::values(harness::Data::kHeavy, n, 4);
          send(spec(levels, scale), bell(n, 1, levels.bits), 7, residual);
          send(spec(levels, scale), odd, 7, residual);
          const Call call = harness::call_of(spec(levels, scale));
          std::vector<Payload> payloads;
          for (unsigned p = 0; p < 6; ++p)
            payloads.push_back(
                harness::encode(eden_codec, eden_codec.reference(), call, bell(n, 1, 10 + p)).payload);
          const Impl& best = eden_codec.best(this_machine());
          for (const auto base : {harness::Base::kNull, harness::Base::kInPlace})
            for (const float divide : {1.0F, 6.0F}) {
              Floats want(n), got(n);
              ASSERT_TRUE(harness::decode(eden_codec, eden_codec.reference(), call, payloads, base, residual,
                                          divide, want)
                              .ok());
              ASSERT_TRUE(
                  harness::decode(eden_codec, best, call, payloads, base, residual, divide, got, 1).ok());
              ASSERT_EQ(harness::first_difference(got, want), "");
            }
        });
}

}  // namespace
}  // namespace tithe::eden
