// SPDX-License-Identifier: Apache-2.0
// The numbers of rounds from stats() and tensor_stats(): norms, bytes and times.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/program/convert.h"
#include "engine/session/norms.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using testing::Ranks;

std::vector<float> wave(std::size_t n, int salt) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = std::sin(static_cast<float>(3 * i) + static_cast<float>(salt));
  return v;
}

double norm_of(std::span<const float> v) {
  double squares = 0;
  for (const float f : v) squares += static_cast<double>(f) * f;
  return std::sqrt(squares);
}

Status round_of(Session& session, std::vector<float>& large, std::vector<float>& small) {
  const Tensor bucket[] = {{.key = "large", .data = large.data(), .n = large.size()},
                           {.key = "small", .data = small.data(), .n = small.size()}};
  const Result<Ticket> ticket = session.sync(bucket);
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

TEST(Norms, AreMeasuredInTheFirstRoundsAndThenPeriodically) {
  std::vector<std::uint64_t> due;
  const engine::Norms norms(100);
  for (std::uint64_t k = 1; k <= 300; ++k)
    if (norms.due(k)) due.push_back(k);
  EXPECT_EQ(due, (std::vector<std::uint64_t>{1, 2, 4, 8, 16, 32, 64, 100, 200, 300}));
  const engine::Norms never(0);
  for (std::uint64_t k = 0; k <= 300; ++k) EXPECT_FALSE(never.due(k));
}

TEST(SessionStats, NormsAreOfTheGradientAndOfTheNewResidual) {
  constexpr std::size_t kLarge = 8000, kSmall = 16;
  Ranks ranks(open_loop(2), {.codec = "topk:ratio=0.1"});
  ranks.each([&](Rank r) {
    Session& session = ranks[r];
    EXPECT_EQ(session.stats().measured_round, 0U);
    for (int k = 1; k <= 3; ++k) {
      std::vector<float> large = wave(kLarge, 2 * k + r), small = wave(kSmall, r);
      const double gradient = std::hypot(norm_of(large), norm_of(small)), alone = norm_of(large);
      ASSERT_TRUE(round_of(session, large, small).ok());
      if (k == 3) continue;  // round 3 is not measured
      std::vector<float> residual(kLarge);
      ASSERT_TRUE(session.residual("large", residual).ok());
      const SessionStats s = session.stats();
      EXPECT_EQ(s.measured_round, static_cast<std::uint64_t>(k));
      EXPECT_NEAR(s.gradient_norm, gradient, 1e-9 * gradient);
      EXPECT_GT(s.residual_norm, 0.1 * gradient);
      EXPECT_NEAR(s.residual_norm, norm_of(residual), 1e-9 * gradient);
      const std::vector<TensorStats> tensors = session.tensor_stats();
      ASSERT_EQ(tensors.size(), 2U);
      EXPECT_EQ(tensors[0].key, "large");
      EXPECT_EQ(tensors[0].codec, "topk:ratio=0.1");
      EXPECT_EQ(tensors[0].n, kLarge);
      EXPECT_NEAR(tensors[0].gradient_norm, alone, 1e-9 * alone);
      EXPECT_NEAR(tensors[0].residual_norm, s.residual_norm, 1e-9 * gradient);
      EXPECT_EQ(tensors[1].key, "small");
      EXPECT_EQ(tensors[1].codec, "fp32");
      EXPECT_EQ(tensors[1].residual_norm, 0);
    }
    EXPECT_EQ(session.stats().measured_round, 2U);
  });
}

TEST(SessionStats, ADroppedRoundIsNotMeasured) {
  Ranks ranks(open_loop(2), {.codec = "fp8", .measure = 1});
  ranks.each([&](Rank r) {
    std::vector<float> large = wave(8000, r), small = wave(16, r);
    ASSERT_TRUE(round_of(ranks[r], large, small).ok());
    const SessionStats before = ranks[r].stats();
    large = wave(8000, r);
    small = wave(16, r);
    if (r == 1) large[7] = std::numeric_limits<float>::infinity();
    ASSERT_TRUE(round_of(ranks[r], large, small).ok());
    const SessionStats after = ranks[r].stats();
    EXPECT_EQ(after.rounds_dropped, 1U);
    EXPECT_EQ(after.measured_round, before.measured_round);
    EXPECT_EQ(after.gradient_norm, before.gradient_norm);
    EXPECT_EQ(after.residual_norm, before.residual_norm);
  });
}

TEST(SessionStats, SideTensorsAreCountedSeparately) {
  Ranks ranks(open_loop(2), {.codec = "topk:ratio=0.1"});
  ranks.each([&](Rank r) {
    std::vector<float> gradient = wave(8000, r), squares(8000, 400.0F);
    const double should = norm_of(gradient);
    const Tensor side{.key = "w (squares)", .data = squares.data(), .n = squares.size(), .side = true};
    const Tensor own{.key = "w", .data = gradient.data(), .n = gradient.size()};
    ASSERT_TRUE(ranks[r].sync({&side, 1}).ok());
    ASSERT_TRUE(ranks[r].sync({&own, 1}).ok());
    ASSERT_TRUE(ranks[r].commit().ok());
    const SessionStats s = ranks[r].stats();
    EXPECT_EQ(s.gradient_bytes, 4U * 8000);
    EXPECT_NEAR(s.gradient_norm, should, 1e-9 * should);
    const std::vector<TensorStats> tensors = ranks[r].tensor_stats();
    ASSERT_EQ(tensors.size(), 2U);
    EXPECT_FALSE(tensors[0].side);
    EXPECT_EQ(s.residual_norm, tensors[0].residual_norm);
    EXPECT_TRUE(tensors[1].side);
    EXPECT_GT(tensors[1].gradient_norm, 1e4);
    EXPECT_NE(tensors[0].strategy, "");
  });
}

TEST(SessionStats, HalfTypesAreMeasuredByValue) {
  std::vector<std::uint16_t> bf16, fp16;
  const std::vector<float> values = {1.0F, -2.0F, 0.5F, 4.0F};
  for (const float v : values) {
    bf16.push_back(engine::to_bf16(v));
    fp16.push_back(engine::to_fp16(v));
  }
  const double should = norm_of(values);
  EXPECT_NEAR(engine::norm({.key = "b", .data = bf16.data(), .n = 4, .dtype = DType::kBF16}), should, 1e-12);
  EXPECT_NEAR(engine::norm({.key = "h", .data = fp16.data(), .n = 4, .dtype = DType::kF16}), should, 1e-12);
}

TEST(SessionStats, BytesHandedOverAndTimesOfRoundsAddUp) {
  Ranks ranks(open_loop(2), {.codec = "fp8", .measure = 0});
  ranks.each([&](Rank r) {
    for (int k = 0; k < 3; ++k) {
      std::vector<float> large = wave(8000, r), small = wave(16, r);
      const Tensor first{.key = "first", .data = large.data(), .n = large.size()};
      const Tensor second{.key = "second", .data = small.data(), .n = small.size()};
      const Result<Ticket> one = ranks[r].sync({&first, 1});
      ASSERT_TRUE(one.ok());
      ASSERT_TRUE(ranks[r].wait(*one).ok());
      const Result<Ticket> two = ranks[r].sync({&second, 1});
      ASSERT_TRUE(two.ok());
      ASSERT_TRUE(ranks[r].wait(*two).ok());
      ASSERT_TRUE(ranks[r].commit().ok());
    }
    const SessionStats s = ranks[r].stats();
    EXPECT_EQ(s.gradient_bytes, 3U * 4 * 8016);
    EXPECT_GT(s.exposed_ns, 0U);
    EXPECT_GT(s.exchange_ns, s.exposed_ns) << "the first exchange ended before the last sync()";
    EXPECT_EQ(s.measured_round, 0U);
    EXPECT_EQ(s.gradient_norm, 0);
  });
}

}  // namespace
}  // namespace tithe
