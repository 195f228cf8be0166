// SPDX-License-Identifier: Apache-2.0
// qsgd_shared and terngrad_shared: levels under norms that all ranks share, added up as whole numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "codec/shared/int_sum/int_fields.h"
#include "support/codec_run.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using harness::Floats;
using harness::Round;
using harness::round_of;

constexpr const char* kSpecs[] = {"qsgd_shared",
                                  "qsgd_shared:bits=8",
                                  "qsgd_shared:bits=3,bucket=64",
                                  "qsgd_shared:bits=2,norm=l2,bucket=4096,feedback=none",
                                  "terngrad_shared",
                                  "terngrad_shared:cut=2.5"};

std::vector<Floats> draw(std::size_t workers, std::size_t n) {
  std::vector<Floats> x;
  for (unsigned w = 0; w < workers; ++w)
    x.push_back(harness::bell(n, 0.01F * static_cast<float>(1 + w % 3), w));
  return x;
}

unsigned numbers_at(const Round& round, std::size_t i) {
  return int_fields::get(round.sum.data(), i, int_fields::head_of(round.sum).bits);
}

// s = 3: levels 3 and 1 are sent as 6 and 4, -2 as 1; with two ranks a field has 4 bits.
TEST(SharedLevels, AddAsIntegers) {
  const Round round = round_of("qsgd_shared:bits=3", {{3, -2, 1, 0}, {3, 1, -1, -0.0F}});
  EXPECT_EQ(int_fields::head_of(round.sum).bits, 4U);
  EXPECT_EQ(int_fields::head_of(round.sum).added, 2U);
  EXPECT_EQ(numbers_at(round, 0), 12U);
  EXPECT_EQ(numbers_at(round, 1), 5U);
  EXPECT_EQ(numbers_at(round, 2), 6U);
  EXPECT_EQ(numbers_at(round, 3), 6U);
  EXPECT_EQ(round.result, (Floats{6, -1, 0, 0}));
}

// Signs of W ranks add up to -W .. W: log2(2 W + 1) bits, rounded up.
TEST(SharedLevels, FieldsOfTerngradAreAsWideAsRanksNeed) {
  for (const auto& [ranks, bits] : {std::pair(1, 2), {2, 3}, {3, 3}, {4, 4}, {7, 4}, {8, 5}, {16, 6}})
    EXPECT_EQ(
        int_fields::head_of(round_of("terngrad_shared", draw(static_cast<std::size_t>(ranks), 300)).sum).bits,
        static_cast<unsigned>(bits))
        << ranks;
}

// With a single rank, the norms are those of qsgd, and values are rounded to the adjacent levels.
TEST(SharedLevels, OneRankEqualsQsgd) {
  constexpr std::size_t kBucket = 1024;  // of both, by default
  const Floats x = harness::bell(3000);
  for (const auto& [more, bits] : {std::pair("", 4), {":bits=8", 8}, {":bits=2,norm=l2,feedback=none", 2}}) {
    const Spec own = harness::spec_of(std::string("qsgd") + more);
    const Call call = harness::call_of(std::string("qsgd") + more, 0);
    const Round shared = round_of(std::string("qsgd_shared") + more, {x});
    const harness::Payload payload = harness::encode(*own.codec, own.codec->reference(), call, x).payload;
    const Floats values = harness::decode_one(*own.codec, own.codec->reference(), call, x.size(), payload);
    const std::size_t bucket_bytes = 4 + kBucket * static_cast<std::size_t>(bits) / 8;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t bucket = i / kBucket;
      const float norm = wire::get<float>(&shared.agreed[4 + 4 * bucket]);
      ASSERT_EQ(norm, wire::get<float>(&payload[2 + bucket * bucket_bytes])) << more;
      ASSERT_LE(std::fabs(values[i] - shared.result[i]),
                norm / static_cast<float>((1 << (bits - 1)) - 1) * 1.00001F);
    }
  }
}

TEST(SharedLevels, LedgerIsExact) {
  for (const char* spec : kSpecs) {
    const std::vector<Floats> x = draw(5, 5000);
    const Round round = round_of(spec, x);
    for (std::size_t i = 0; i < 5000; ++i) {
      double balance = -double{round.result[i]};
      for (std::size_t w = 0; w < x.size(); ++w) balance += double{x[w][i]} - round.residual_out[w][i];
      ASSERT_LE(std::fabs(balance), 1e-6) << spec << " " << i;
    }
  }
}

TEST(SharedLevels, EverySettingEqualsTheReference) {
  for (const char* spec : kSpecs) {
    SCOPED_TRACE(spec);
    round_of(spec, draw(3, 4999));
  }
}

// Equal magnitudes on all ranks are sent exactly, for any draws.
TEST(SharedLevels, EqualMagnitudesAreSentExactly) {
  for (const char* spec : {"qsgd_shared", "terngrad_shared"}) {
    Floats x(2000, 0.3F);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] = -0.3F;
    const Round round = round_of(spec, {x, x, x, x});
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_FLOAT_EQ(round.result[i], 4 * x[i]) << spec;
    EXPECT_EQ(round.residual_out, std::vector<Floats>(4, Floats(2000))) << spec;
  }
}

TEST(SharedLevels, MoreRanksThanStatedAreRefused) {
  for (const char* spec : {"qsgd_shared:workers=3", "terngrad_shared:workers=3"}) {
    const Codec& codec = *parse_spec(spec)->codec;
    const Call call = harness::call_of(spec, 0);
    const harness::Payload one = harness::encode(codec, codec.reference(), call, Floats(10, 1.0F)).payload;
    harness::Payload acc = one;
    for (const Code want : {Code::kOk, Code::kOk, Code::kUnsupported})
      EXPECT_EQ(codec.best(this_machine()).combine(call, 10, acc, one, nullptr).status().code(), want)
          << spec;
  }
}

}  // namespace
}  // namespace tithe
