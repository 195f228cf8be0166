// SPDX-License-Identifier: Apache-2.0
#include "codec/randomk/randomk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/bytes.h"
#include "support/codec_run.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using Values = std::vector<float>;

using harness::EncodeOutput;

EncodeOutput send(const Call& call, const Values& grad) { return harness::send(randomk_codec, call, grad); }

Call call_of(const char* text) {
  const Result<Spec> spec = parse_spec(text);
  EXPECT_TRUE(spec.ok()) << text;
  return {.settings = spec->settings, .shared_seed = 5};
}

TEST(Randomk, OneIndexOfEachStratum) {
  for (const std::size_t n : {0U, 1U, 7U, 100U, 1001U, 65'537U})
    for (const std::size_t count : {std::size_t{1}, n / 100, n / 3, n - 1, n}) {
      if (count == 0 || count > n) continue;
      std::size_t j = 0;
      for (randomk::IndexDraws p(99, n, count); !p.done(); p.next(), ++j) {
        ASSERT_GE(p.index(), j * n / count) << n << " " << count;
        ASSERT_LT(p.index(), (j + 1) * n / count);
      }
      ASSERT_EQ(j, count);
    }
}

// By SIMD and one by one, from any stratum on; n exceeds 2^31.
TEST(Randomk, ListsTheIndicesThatItDraws) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{100}, std::size_t{1001}, std::size_t{0xfffffffe}})
    for (const std::size_t count : {std::size_t{1}, n / 100, n / 3, n / 2 + 1, n - 1, n}) {
      if (count == 0) continue;
      for (const std::size_t first : {std::size_t{0}, count / 3, count - std::min<std::size_t>(count, 70)}) {
        std::vector<std::uint32_t> indices(std::min<std::size_t>(1000, count - first));
        randomk::list_indices(0x123456789abcdefULL, n, count, first, indices);
        randomk::IndexDraws p(0x123456789abcdefULL, n, count, first);
        for (const std::uint32_t index : indices) {
          ASSERT_EQ(index, p.index()) << n << " " << count << " " << first;
          p.next();
        }
      }
    }
}

// E |x - sent|^2 <= (1 - 1 / ceil(n / k)) |x|^2, and every value is sent in some round.
TEST(Randomk, ContractsInExpectation) {
  constexpr std::size_t n = 1000;
  constexpr double values = 1000;
  for (const double ratio : {0.01, 0.13, 0.5}) {
    Call call = call_of("randomk");
    call.settings.value[0] = ratio;
    for (const unsigned seed : {1U, 2U}) {
      Values x = draws::bell(n, 1, seed);
      if (seed == 2) x[137] = 100.0F;  // nearly all of the energy in one value
      double energy = 0;
      for (const float v : x) energy += double{v} * double{v};
      double lost = 0;
      constexpr int kRounds = 4000;
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        call.round = round;
        const EncodeInput input{x.data(), nullptr, nullptr, n};
        std::vector<std::uint8_t> payload(randomk_codec.phases[0].bound(call.settings, n));
        ASSERT_TRUE(randomk_codec.impls.front().encode(call, input, payload).ok());
        double kept = 0;
        for (std::size_t at = 16; at < payload.size(); at += 4) {
          const double v = wire::get<float>(&payload[at]);
          kept += v * v;
        }
        lost += energy - kept;
      }
      const double k = std::ceil(ratio * values);
      const double share = 1 / std::ceil(values / k);
      // A round's loss strays by at most sqrt(share) of the energy: six sigma of the mean.
      const double noise = 6 * std::sqrt(share / kRounds);
      EXPECT_LE(lost / kRounds / energy, 1 - share + noise) << ratio;
      EXPECT_GE(lost / kRounds / energy, 1 - 1 / std::floor(values / k) - noise) << ratio;
    }
  }
}

TEST(Randomk, IndicesAreEqualOverRanksAndDifferByRound) {
  const Values x(5000, 1.0F);
  Call call = call_of("randomk:ratio=0.02");
  const EncodeOutput first = send(call, x);
  call.seed = 77;  // another rank
  EXPECT_EQ(send(call, x).payload, first.payload);
  call.round = 1;
  EXPECT_NE(send(call, x).residual_out, first.residual_out);
}

// In every form and at every index: the decoded sum of three payloads and the rounding error give the exact sum.
TEST(Randomk, PayloadsAddAndRoundingStaysInTheResidual) {
  const auto combine = randomk_codec.best(this_machine()).combine;
  for (const char* text :
       {"randomk:ratio=0.3", "randomk:ratio=0.3,values=bf16", "randomk:ratio=0.3,values=fp16",
        "randomk:ratio=0.3,values=8bit", "randomk:ratio=0.3,values=4bit"}) {
    const Call call = call_of(text);
    for (const std::size_t n : {1U, 10U, 426U, 2000U}) {
      Values want(n), residual_out(n);
      std::vector<std::uint8_t> sum;
      for (unsigned rank = 0; rank < 3; ++rank) {
        const EncodeOutput sent = send(call, draws::bell(n, 1, rank));
        for (std::size_t i = 0; i < n; ++i) want[i] += sent.values[i];
        if (rank == 0) {
          sum = sent.payload;
        } else {
          ASSERT_TRUE(combine({.settings = call.settings}, n, sum, sent.payload, residual_out.data()).ok());
        }
      }
      ASSERT_TRUE(randomk_codec.reference().check(call, n, sum).ok());
      Values got(n);
      const ByteView view(sum);
      ASSERT_TRUE(randomk_codec.reference().decode(call, {&view, 1}, {}, got).ok());
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_NEAR(got[i] + residual_out[i], want[i], 4e-6) << text << " " << i;
    }
  }
}

TEST(Randomk, RefusesToAddOtherIndices) {
  const Values x(500, 1.0F);
  Call call = call_of("randomk:ratio=0.1");
  std::vector<std::uint8_t> one = send(call, x).payload;
  const std::vector<std::uint8_t> before = one;
  call.round = 9;
  const std::vector<std::uint8_t> other = send(call, x).payload;
  const auto combine = randomk_codec.best(this_machine()).combine;
  EXPECT_EQ(combine({.settings = call.settings}, 500, one, other, nullptr).status().code(), Code::kCorrupt);
  EXPECT_EQ(one, before);
}

}  // namespace
}  // namespace tithe
