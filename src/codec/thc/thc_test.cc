// SPDX-License-Identifier: Apache-2.0
#include "codec/thc/thc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "codec/shared/rotation/rotation.h"
#include "support/codec_run.h"
#include "tithe/seam/catalogue.h"

namespace tithe::thc {
namespace {

using harness::bell;
using harness::Floats;
using harness::Payload;
using harness::Round;
using harness::round_of;

Payload encode(const Call& call, const Floats& x) {
  return harness::encode(thc_codec, thc_codec.reference(), call, x).payload;
}

// Li et al., the table for 4 bits, granularity 30 and one value in 32 outside: 8 ranks fit into 8 bits.
TEST(Thc, TableIsThePublishedOne) {
  const std::array<std::uint8_t, 16> published = {0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30};
  EXPECT_EQ(kTable, published);
  const Quantizer quantizer(parse_spec("thc:mode=literal")->settings);
  EXPECT_EQ(quantizer.top, 30U);
  EXPECT_EQ(int_fields::bits_for(quantizer.top, 8), 8U);
  EXPECT_NEAR(std::erfc(quantizer.reach / std::sqrt(2.0)), 1.0 / 32, 1e-12);
  const Round round = round_of("thc:mode=literal", {bell(5000)});
  std::set<unsigned> used;
  for (std::size_t i = 0; i < fields_for(5000); ++i)
    used.insert(int_fields::get(round.sum.data(), i, int_fields::head_of(round.sum).bits));
  EXPECT_EQ(used, std::set<unsigned>(kTable.begin(), kTable.end()));
}

// As published: a sum of table values over W ranks decodes to (sum / W - 15) 2 T / 30 norm / sqrt(d), the mean.
TEST(Thc, TableValuesDecodeByThePublishedFormula) {
  const Quantizer quantizer(parse_spec("thc:mode=literal")->settings);
  const Grid grid(quantizer, 5, 0, 1,
                  2.0F * static_cast<float>(quantizer.reach));  // width 1, so norm / sqrt(d) = 2
  const double sign = rotation::signs(grid.key, grid.first / 32) & 1 ? -1 : 1;
  for (const unsigned sum : {0U, 3U, 30U, 77U, 240U}) {
    Levels sums{};
    Values out{};
    sums[0] = sum;
    kReference.values(grid, 8, sums, out);
    const double published = (sum / 8.0 - 15) * 2 * quantizer.reach / 30 * 2;
    EXPECT_NEAR(out[0] / 8, sign * published, 1e-6) << sum;
  }
}

// The mean over all draws is the value that was rounded, whichever the levels.
TEST(Thc, RoundingHasTheRightMean) {
  for (const bool table : {false, true})
    for (const float at : {0.0F, 0.25F, 2.5F, 3.0F, 4.75F, 13.5F, 15.0F, 16.125F, 28.5F, 29.9375F, 30.0F}) {
      double sum = 0;
      for (int k = 0; k < 4096; ++k) sum += round(at, static_cast<float>(k) / 4096, table);
      EXPECT_NEAR(sum / 4096, at, 3.0 / 4096) << at << (table ? " table" : " even");
    }
}

// Two values by hand: steps 15 and 4 of 15 are +15 and -7 half steps, which H maps to 8 and 22.
TEST(Thc, TwoValuesMatchAManualComputation) {
  const Quantizer quantizer(parse_spec("thc")->settings);
  const Grid grid(quantizer, 3, 0, 2, 15.0F * std::sqrt(2.0F));
  Levels sums{};
  Values out{};
  sums[0] = 15;
  sums[1] = 4;
  kReference.values(grid, 1, sums, out);
  EXPECT_FLOAT_EQ(std::abs(out[0]), 8.0F);
  EXPECT_FLOAT_EQ(std::abs(out[1]), 22.0F);
  EXPECT_EQ(std::signbit(out[0]), (rotation::signs(grid.key, grid.first / 32) & 1) != 0);
  EXPECT_EQ(std::signbit(out[1]), (rotation::signs(grid.key, grid.first / 32) >> 1 & 1) != 0);
}

// Int fields are as wide as the present ranks need: 15 x 4 = 60 takes 6 bits.
TEST(Thc, FieldsAreAsWideAsTheRanksNeed) {
  for (const auto& [workers, bits] : {std::pair(1, 4), {2, 5}, {4, 6}, {8, 7}, {16, 8}}) {
    std::vector<Floats> x;
    for (int w = 0; w < workers; ++w) x.push_back(bell(3000, 1, static_cast<unsigned>(w)));
    const Round round = round_of("thc", x);
    EXPECT_EQ(int_fields::head_of(round.sum).added, static_cast<unsigned>(workers));
    EXPECT_EQ(int_fields::head_of(round.sum).bits, static_cast<unsigned>(bits));
    double error = 0, energy = 0, unbalanced = 0;
    for (std::size_t i = 0; i < 3000; ++i) {
      double sum = 0, residual_out = 0;
      for (int w = 0; w < workers; ++w) {
        sum += x[static_cast<std::size_t>(w)][i];
        residual_out += round.residual_out[static_cast<std::size_t>(w)][i];
      }
      error += (sum - round.result[i]) * (sum - round.result[i]);
      energy += sum * sum;
      unbalanced = std::max(unbalanced, std::abs(sum - round.result[i] - residual_out));
    }
    EXPECT_LT(error, 0.03 * energy) << workers;
    EXPECT_LT(unbalanced, 1e-5) << workers;
  }
}

TEST(Thc, MoreRanksThanStatedAreRefused) {
  const Floats x = bell(100);
  const Call call = harness::call_of("thc:workers=2", 0);
  const Payload one = encode(call, x);
  Payload acc = one;
  ASSERT_TRUE(thc_codec.best(this_machine()).combine(call, 100, acc, one, nullptr).ok());
  EXPECT_EQ(thc_codec.best(this_machine()).combine(call, 100, acc, one, nullptr).status().code(),
            Code::kUnsupported);
}

TEST(Thc, RanksDrawTheSameSigns) {
  const Floats x = bell(100);
  Call call = harness::call_of("thc", 0);
  Payload acc = encode(call, x);
  call.shared_seed += 1;
  EXPECT_EQ(thc_codec.best(this_machine()).combine(call, 100, acc, encode(call, x), nullptr).status().code(),
            Code::kCorrupt);
}

// The loss of a block of small values does not depend on the block of large values next to it.
TEST(Thc, EachBlockHasItsOwnRange) {
  Floats x = bell(2 * kBlock);
  for (std::size_t i = kBlock; i < x.size(); ++i) x[i] *= 1e-6F;
  const Round round = round_of("thc", {x});
  for (const std::size_t first : {std::size_t{0}, kBlock}) {
    double error = 0, energy = 0;
    for (std::size_t i = first; i < first + kBlock; ++i) {
      error += std::pow(double{x[i]} - round.result[i], 2);
      energy += std::pow(double{x[i]}, 2);
    }
    EXPECT_LT(error, 0.03 * energy) << first;
  }
}

TEST(Thc, ZerosAndTinyValuesAreNotSent) {
  for (const float scale : {0.0F, 1e-39F}) {
    const Floats x = bell(1500, scale);
    const Round round = round_of("thc", {x});
    EXPECT_EQ(round.result, Floats(1500));
    EXPECT_EQ(round.residual_out[0], x);
  }
}

}  // namespace
}  // namespace tithe::thc
