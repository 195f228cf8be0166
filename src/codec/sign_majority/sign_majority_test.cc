// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/bit_packing.h"
#include "support/codec_run.h"
#include "support/implementations_agree.h"

namespace tithe {
namespace {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

using harness::Round;
using harness::round_of;

// The published rule: the outcome does not depend on how large a minority's values are; here 0 for a tie.
TEST(SignMajority, MajorityDecides) {
  const Round three = round_of("sign_majority:scale=1,feedback=none", {{9, -1, -1}, {-1, -1, 1}, {-1, 5, 1}});
  EXPECT_EQ(three.result, (Floats{-3, -3, 3}));
  const Round two = round_of("sign_majority:scale=1,feedback=none", {{9, -1, -1}, {-1, -1, 1}});
  EXPECT_EQ(two.result, (Floats{0, -2, 0}));
}

TEST(SignMajority, CountsHaveEnoughBitsForAllVoters) {
  EXPECT_EQ(
      round_of("sign_majority:voters=3", {{1, -1, -1, 1, -1}, {1, 1, -1, 1, -1}, {1, 1, -1, -1, 1}}).agreed,
      (Payload{2, 3, 0b01'11'01'00, 0b10}));
  EXPECT_EQ(round_of("sign_majority:voters=1", {{1, -1, -1, 1, 0}}).agreed, (Payload{1, 1, 0b00110}));
}

TEST(SignMajority, OneVoterEqualsSign) {
  const Floats grad = harness::bell(5000);
  const Round alone = round_of("sign_majority", {grad});
  const Floats want = harness::send("sign", grad).values;
  for (std::size_t i = 0; i < grad.size(); ++i) ASSERT_NEAR(alone.result[i], want[i], 1e-6) << i;
}

// The error of the result is in the residuals, and no rank's residual is larger than its values.
TEST(SignMajority, LedgerIsExactAndResidualsStayBounded) {
  std::vector<Floats> ranks;
  for (unsigned r = 0; r < 5; ++r) ranks.push_back(harness::bell(3000, 1, 1 + r));
  const Round outcome = round_of("sign_majority", ranks);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    EXPECT_LE(harness::squares(outcome.residual_out[r]), harness::squares(ranks[r]));
  for (std::size_t i = 0; i < 3000; ++i) {
    double had = 0, has = outcome.result[i];
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      had += ranks[r][i];
      has += outcome.residual_out[r][i];
    }
    ASSERT_NEAR(had, has, 1e-5) << i;
  }
}

TEST(SignMajority, FastEqualsReferenceOnAnyFloats) {
  for (const char* voters : {"1", "3", "7", "15", "31", "63", "127", "255"})
    harness::expect_impls_agree(std::string("sign_majority:voters=") + voters);
  harness::expect_impls_agree("sign_majority:voters=7,scale=0.5", 3);
}

// Votes that differ: all majorities, ties among them, at every width.
TEST(SignMajority, FastEqualsReferenceForAnyVotes) {
  constexpr std::size_t kValues = 5003;
  const Floats grad = harness::bell(kValues), onto = harness::bell(kValues, 1, 2);
  for (int k = 0; k < 8; ++k) {
    const Spec spec = harness::spec_of("sign_majority:voters=" + std::to_string((2 << k) - 1));
    const Codec& codec = *spec.codec;
    Call call;
    call.settings = spec.settings;
    for (const unsigned voters : {1U, 1U << k, (2U << k) - 1}) {
      Payload votes(codec.phases[0].bound(call.settings, kValues));
      votes[0] = static_cast<std::uint8_t>(k + 1);
      votes[1] = static_cast<std::uint8_t>(voters);
      for (std::size_t i = 0; i < kValues; ++i)
        bit_packing::put(&votes[2], i, votes[0], static_cast<unsigned>(i * i % (voters + 1)));
      EXPECT_TRUE(codec.best(this_machine()).check({.settings = spec.settings}, kValues, votes).ok());
      call.phase = 1;
      call.context = votes;
      std::vector<Payload> sizes;
      std::vector<Floats> residual_out, sums;
      for (const Impl& impl : codec.impls) {
        residual_out.emplace_back(kValues);
        sums.emplace_back(kValues);
        sizes.emplace_back(codec.phases[1].bound(call.settings, kValues));
        EXPECT_TRUE(
            impl.encode(call, {grad.data(), onto.data(), residual_out.back().data(), kValues}, sizes.back())
                .ok());
        const ByteView view = sizes.back();
        EXPECT_TRUE(impl.decode(call, {&view, 1}, {onto.data(), 3}, sums.back()).ok());
        EXPECT_TRUE(sizes.back() == sizes[0]) << impl.name << voters;
        EXPECT_TRUE(harness::same_values(residual_out.back(), residual_out[0])) << impl.name << voters;
        EXPECT_TRUE(harness::same_values(sums.back(), sums[0])) << impl.name << voters;
      }
    }
  }
}

// Counts that use all their bits, without gaps: no carry into the next count, nor across words.
TEST(SignMajority, CountsAddWithCarry) {
  constexpr std::size_t kValues = 301;
  for (unsigned bits = 2; bits <= 8; ++bits) {
    const unsigned most = (1U << bits) - 1;
    const Spec spec = harness::spec_of("sign_majority:voters=" + std::to_string(most));
    const Phase& votes = spec.codec->phases[0];
    Payload acc(votes.bound(spec.settings, kValues)), in = acc;
    acc[0] = in[0] = static_cast<std::uint8_t>(bits);
    acc[1] = static_cast<std::uint8_t>(most - 1);
    in[1] = 1;
    const auto before = [&](std::size_t i) { return static_cast<unsigned>(i * 7) % most; };
    for (std::size_t i = 0; i < kValues; ++i) {
      bit_packing::put(&acc[2], i, bits, before(i));
      bit_packing::put(&in[2], i, bits, i % 3 == 0);
    }
    ASSERT_TRUE(spec.codec->reference().combine({.settings = spec.settings}, kValues, acc, in, nullptr).ok());
    for (std::size_t i = 0; i < kValues; ++i)
      ASSERT_EQ(bit_packing::get(&acc[2], i, bits), before(i) + (i % 3 == 0)) << i << " of " << bits;
  }
}

TEST(SignMajority, MoreRanksThanVotersAreRefused) {
  const Spec spec = harness::spec_of("sign_majority:voters=3");
  Payload full = {2, 3, 0b11}, one = {2, 1, 0b01};
  EXPECT_EQ(
      spec.codec->reference().combine({.settings = spec.settings}, 1, full, one, nullptr).status().code(),
      Code::kUnsupported);
  EXPECT_EQ(full, (Payload{2, 3, 0b11}));
}

// One of three ranks claims that all voted minus, as one rank or as two: neither payload is added.
TEST(SignMajority, OneRankDoesNotOutvoteTwoWithForgedCounts) {
  const Spec spec = harness::spec_of("sign_majority:voters=7");
  const Payload honest = {3, 1, 0b00'000'000};
  for (const Payload& forged : {Payload{3, 1, 0b00'010'010}, Payload{3, 1, 0b01'001'001},
                                Payload{3, 2, 0b00'010'010}, Payload{3, 0, 0}, Payload{2, 1, 0}}) {
    Payload acc = honest;
    const Result<Combined> done =
        spec.codec->reference().combine({.settings = spec.settings, .ranks = 2}, 2, acc, forged, nullptr);
    EXPECT_EQ(done.status().code(), Code::kCorrupt) << int{forged[1]} << " " << int{forged[2]};
    EXPECT_EQ(acc, honest);
  }
}

// Counts up to 2^k - 1 are checked by their bits: across word boundaries, at every index and width.
TEST(SignMajority, RefusesCountsAboveTheVoters) {
  for (unsigned bits = 1; bits <= 8; ++bits)
    for (unsigned voters = 1; voters < 1U << bits; ++voters) {
      const Spec spec = harness::spec_of("sign_majority:voters=" + std::to_string((1U << bits) - 1));
      const Phase& votes = spec.codec->phases[0];
      for (const std::size_t n : {1U, 7U, 64U, 65U, 200U}) {
        Payload good(votes.bound(spec.settings, n));
        good[0] = static_cast<std::uint8_t>(bits);
        good[1] = static_cast<std::uint8_t>(voters);
        for (std::size_t i = 0; i < n; ++i) bit_packing::put(&good[2], i, bits, voters);
        ASSERT_TRUE(spec.codec->reference().check({.settings = spec.settings}, n, good).ok())
            << bits << " " << voters;
        if (voters + 1 == 1U << bits) continue;
        for (std::size_t at = 0; at < n; at += 1 + n / 9) {
          Payload bad(votes.bound(spec.settings, n));
          bad[0] = good[0];
          bad[1] = good[1];
          for (std::size_t i = 0; i < n; ++i)
            bit_packing::put(&bad[2], i, bits, i == at ? voters + 1 : voters);
          ASSERT_EQ(spec.codec->reference().check({.settings = spec.settings}, n, bad).code(), Code::kCorrupt)
              << bits << " " << voters << " " << at;
        }
      }
    }
}

TEST(SignMajority, CheckRefusesImpossibleCounts) {
  const Spec spec = harness::spec_of("sign_majority:voters=3");
  const auto code = [&](std::uint8_t phase, const Payload& p) {
    return spec.codec->reference().check({.settings = spec.settings, .phase = phase}, 2, p).code();
  };
  EXPECT_EQ(code(0, {2, 2, 0b1001}), Code::kOk);
  EXPECT_EQ(code(0, {2, 2, 0b1011}), Code::kCorrupt);   // three of two voters
  EXPECT_EQ(code(0, {2, 0, 0}), Code::kCorrupt);        // no voters
  EXPECT_EQ(code(0, {2, 4, 0}), Code::kCorrupt);        // more than 3 did
  EXPECT_EQ(code(0, {3, 2, 0b1001}), Code::kCorrupt);   // counts of other bits
  EXPECT_EQ(code(0, {2, 2, 0b11001}), Code::kCorrupt);  // a third value
  EXPECT_EQ(code(1, {0, 0, 0x80, 0x3f}), Code::kOk);
  EXPECT_EQ(code(1, {0, 0, 0x80, 0x3f, 0}), Code::kCorrupt);
}

}  // namespace
}  // namespace tithe
