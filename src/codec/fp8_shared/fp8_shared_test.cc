// SPDX-License-Identifier: Apache-2.0
#include "codec/fp8_shared/fp8_shared.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/bytes.h"
#include "codec/shared/floats/fp8_format.h"
#include "support/codec_run.h"
#include "support/implementations_agree.h"

namespace tithe::fp8 {
namespace {

using harness::Floats;
using harness::Round;
using harness::round_of;

std::uint8_t scale_at(const Round& round, std::size_t block) { return round.sum[kHead + block]; }

// 448 is the largest code of e4m3: alone it needs the scale 1, of three ranks the sum must fit below 4 times that.
TEST(Fp8Shared, TheScaleLeavesRoomForAllRanks) {
  for (const auto& [ranks, room] : {std::pair(1, 0), {2, 1}, {3, 2}, {4, 2}, {5, 3}, {16, 4}}) {
    const Round round =
        round_of("fp8_shared", std::vector<Floats>(static_cast<std::size_t>(ranks), Floats{448, -448}));
    EXPECT_EQ(scale_at(round, 0), 127 + room) << ranks;
    const float sum = 448.0F * static_cast<float>(ranks);  // between codes where ranks is 3 or 5
    EXPECT_EQ(round.result[0] + round.rounding[0], sum) << ranks;
    EXPECT_LE(std::fabs(round.rounding[0]), sum / 16) << ranks;
    EXPECT_EQ(round.result[1], -round.result[0]) << ranks;
  }
}

TEST(Fp8Shared, LargestRankSetsTheScale) {
  const Round round = round_of("fp8_shared", {Floats(33, 1.0F), Floats(33, 224.0F)});
  EXPECT_EQ(scale_at(round, 0), 127);  // 224 fits below 448 / 2
  EXPECT_EQ(scale_at(round, 1), 127);
  // The nearest code to 225 is 224; the rounding error stays with the adding rank.
  EXPECT_EQ(round.result, Floats(33, 224.0F));
  EXPECT_EQ(round.rounding, Floats(33, 1.0F));
}

// The ranks' residuals and the rounding errors of additions sum to the error of the result.
TEST(Fp8Shared, LedgerIsExact) {
  for (const char* spec : {"fp8_shared", "fp8_shared:format=e5m2"}) {
    std::vector<Floats> x;
    for (unsigned w = 0; w < 7; ++w) x.push_back(harness::bell(1000, 0.1F, w));
    const Round round = round_of(spec, x);
    for (std::size_t i = 0; i < 1000; ++i) {
      double balance = -double{round.result[i]} - round.rounding[i];
      for (std::size_t w = 0; w < x.size(); ++w) balance += double{x[w][i]} - round.residual_out[w][i];
      ASSERT_LE(std::abs(balance), 1e-6) << spec << " " << i;
    }
  }
}

TEST(Fp8Shared, RefusesNanCodes) {
  const Round round = round_of("fp8_shared", {Floats(5, 1.0F)});
  const Call call{.settings = {}, .phase = 1};
  std::vector<std::uint8_t> bad = round.sum;
  bad[kHead + 1] = 0x7f;  // behind the one scale
  std::vector<std::uint8_t> acc = round.sum;
  std::vector<std::uint8_t> other = round.sum;
  ++other[kHead];
  for (const Impl& impl : fp8_shared_codec.impls) {
    EXPECT_EQ(impl.check(call, 5, bad).code(), Code::kCorrupt);
    EXPECT_EQ(impl.combine(call, 5, acc, bad, nullptr).status().code(), Code::kCorrupt);
    EXPECT_EQ(impl.combine(call, 5, acc, other, nullptr).status().code(), Code::kCorrupt);
  }
  EXPECT_EQ(acc, round.sum);
}

TEST(Fp8Shared, FastEqualsReferenceOnAnyFloats) {
  for (const char* spec : {"fp8_shared", "fp8_shared:format=e5m2"})
    for (const int workers : {1, 3}) harness::expect_impls_agree(spec, workers);
}

}  // namespace
}  // namespace tithe::fp8
