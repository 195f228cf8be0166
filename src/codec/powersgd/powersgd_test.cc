// SPDX-License-Identifier: Apache-2.0
#include "codec/powersgd/powersgd.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <vector>

#include "base/bytes.h"
#include "support/draws.h"

namespace tithe::powersgd {
namespace {

using Floats = std::vector<float>;
using Bytes_ = std::vector<std::uint8_t>;

// Workers that do rounds together, in the engine's order.
class Workers {
 public:
  Workers(double rank, double cols, const Impl& impl = powersgd_codec.best(this_machine()),
          std::uint32_t first_round = 0)
      : impl_(impl), settings_(defaults(powersgd_codec)), rounds_(first_round) {
    settings_.value[0] = rank;
    settings_.value[1] = cols;
  }

  // The sum of the results; left_[w] is added to each worker's values, if present.
  Floats round(const std::vector<Floats>& grads, bool feedback = false) {
    const std::size_t n = grads[0].size();
    if (feedback) left_.resize(grads.size(), Floats(n));
    const std::size_t room = powersgd_codec.scratch(settings_, n);
    const std::unique_ptr<std::uint8_t, decltype(&std::free)> scratch(
        static_cast<std::uint8_t*>(std::aligned_alloc(64, room + 64)), std::free);
    memory_.resize(powersgd_codec.memory(settings_, n));
    Bytes_ next(memory_.size());
    Call call;
    call.settings = settings_;
    call.shared_seed = 3;
    call.round = rounds_++;
    call.scratch = {scratch.get(), room};
    call.memory = memory_;
    for (std::uint8_t phase = 0; phase < 2; ++phase) {
      Bytes_ total;
      for (std::size_t w = 0; w < grads.size(); ++w) {
        Bytes_ payload(powersgd_codec.phases[phase].bound(settings_, n));
        call.phase = phase;
        call.context = factor_;
        EncodeInput input{grads[w].data(), nullptr, nullptr, n};
        if (feedback) input.residual = left_[w].data();
        if (feedback && phase == 1) input.residual_out = left_[w].data();
        const Result<Encoded> done = impl_.encode(call, input, payload);
        EXPECT_TRUE(done.ok() && done->bytes == payload.size());
        finite_ = done.ok() && done->finite;
        if (w == 0)
          total = payload;
        else
          EXPECT_TRUE(
              impl_.combine({.settings = settings_, .phase = phase}, n, total, payload, nullptr).ok());
      }
      if (phase == 0)
        factor_ = total;
      else
        columns_ = total;
    }
    call.context = factor_;
    call.next_memory = next;
    Floats out(n);
    const ByteView view = columns_;
    EXPECT_TRUE(impl_.decode(call, {&view, 1}, {}, out).ok());
    memory_ = next;
    return out;
  }

  Settings& settings() { return settings_; }
  const Bytes_& factor() const { return factor_; }
  const Bytes_& columns() const { return columns_; }
  const Bytes_& memory() const { return memory_; }
  bool finite() const { return finite_; }

 private:
  const Impl& impl_;
  Settings settings_;
  std::uint32_t rounds_;
  std::vector<Floats> left_;
  Bytes_ memory_, factor_, columns_;
  bool finite_ = true;
};

double loss(const Floats& x, const Floats& sent) {
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += (double{x[i]} - sent[i]) * (double{x[i]} - sent[i]);
    energy += double{x[i]} * x[i];
  }
  return error / energy;
}

// A matrix with singular values s_k: cosines as left and Walsh functions as right singular vectors.
constexpr std::size_t kSide = 64;
Floats with_spectrum(const std::vector<double>& s) {
  Floats m(kSide * kSide);
  for (std::size_t k = 0; k < s.size(); ++k)
    for (std::size_t i = 0; i < kSide; ++i) {
      const double u =
          std::cos(std::numbers::pi * (static_cast<double>(i) + 0.5) * static_cast<double>(k) / kSide) *
          std::sqrt((k == 0 ? 1.0 : 2.0) / kSide);
      for (std::size_t j = 0; j < kSide; ++j)
        m[i * kSide + j] += static_cast<float>(s[k] * u * (std::popcount(j & k) % 2 == 0 ? 0.125 : -0.125));
    }
  return m;
}

TEST(PowerSgd, LowRankMatrixIsExact) {
  for (const double rank : {3.0, 4.0, 7.0})
    for (const Impl& impl : powersgd_codec.impls) {
      Workers one(rank, kSide, impl);
      const Floats m = with_spectrum({4, 2, 1});
      EXPECT_LT(loss(m, one.round({m})), 1e-12) << rank << ' ' << impl.name;
    }
  Workers too_few(2, kSide);
  const Floats m = with_spectrum({4, 2, 1});
  EXPECT_GT(loss(m, too_few.round({m})), 1.0 / 21 * 0.99);
}

// The minimum loss of rank r is the energy of the other singular values (Eckart and Young 1936).
TEST(PowerSgd, RepeatedRoundsConvergeToTheBestApproximation) {
  std::vector<double> s;
  double all = 0, rest = 0;
  for (std::size_t k = 0; k < kSide; ++k) {
    s.push_back(1 / (1 + 0.2 * static_cast<double>(k * k)));
    all += s[k] * s[k];
    if (k >= 4) rest += s[k] * s[k];
  }
  const Floats m = with_spectrum(s);
  Workers one(4, kSide);
  double before = 1;
  std::vector<double> losses;
  for (int round = 0; round < 12; ++round) {
    losses.push_back(loss(m, one.round({m})));
    EXPECT_LE(losses.back(), before * (1 + 1e-6)) << "subspace iteration never makes it worse";
    before = losses.back();
  }
  EXPECT_GT(losses.front(), 1.5 * rest / all) << "the first round must have a larger loss than the minimum";
  EXPECT_NEAR(losses.back(), rest / all, 1e-6);
}

// The warm start makes one iteration per round sufficient: without the memory no round is better than the first.
TEST(PowerSgd, WithoutStateEveryRoundRestarts) {
  const Floats m = draws::bell(kSide * kSide, 1, 5);
  Workers warm(2, kSide);
  double least = 1, last = 0;
  for (std::uint32_t round = 0; round < 30; ++round) {
    last = loss(m, warm.round({m}));
    Workers cold(2, kSide, powersgd_codec.best(this_machine()), round);
    least = std::min(least, loss(m, cold.round({m})));
  }
  EXPECT_LT(last, least);
}

// With feedback the whole matrix is sent over time, for any rank: the sums of results and the residual add up to it.
TEST(PowerSgd, FeedbackSendsEverythingEventually) {
  const Floats m = draws::bell(48 * 40);
  Workers two(2, 40);
  Floats got(m.size());
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const Floats arrived = two.round({m, m}, true);
    for (std::size_t i = 0; i < m.size(); ++i) got[i] += arrived[i] / (2 * kRounds);
  }
  EXPECT_LT(loss(m, got), 0.03);
}

// The factors of a sum are the sums of factors: two workers get the result of one worker with the sum.
TEST(PowerSgd, WorkersEqualOneWorkerWithTheSum) {
  const Floats a = draws::bell(50 * 30), b = draws::bell(50 * 30, 1, 2);
  Floats sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  Workers two(4, 30), one(4, 30);
  for (int round = 0; round < 3; ++round) EXPECT_LT(loss(one.round({sum}), two.round({a, b})), 1e-9);
}

TEST(PowerSgd, SmallTensorsAndVectorsAreExact) {
  for (const auto& [n, cols] : {std::pair{0U, 0.0}, std::pair{1U, 0.0}, std::pair{64U, 0.0},
                                std::pair{1000U, 1000.0}, std::pair{1000U, 5000.0}, std::pair{1000U, 3.0}}) {
    Workers one(4, cols);
    const Floats v = draws::bell(n, 1, 3);
    EXPECT_EQ(one.round({v}), v) << n << " values in rows of " << cols;
    EXPECT_EQ(one.columns().size(), 4 * n);
    EXPECT_EQ(one.memory().size(), 0U);
  }
}

// Shapes of PyTorch weights: out features x all other dimensions; the last row may be incomplete.
TEST(PowerSgd, PayloadsAreTheFactors) {
  struct Shaped {
    std::size_t n;
    double rank, cols;
    std::size_t rows, width;
  };
  for (const Shaped& s : {Shaped{2048UL * 784, 4, 784, 2048, 784}, Shaped{10'000, 2, 0, 100, 100},
                          Shaped{10'001, 2, 0, 100, 101}, Shaped{1000, 1, 48, 21, 48}}) {
    Settings settings = defaults(powersgd_codec);
    settings.value = {s.rank, s.cols};
    const auto r = static_cast<std::size_t>(s.rank);
    EXPECT_EQ(powersgd_codec.phases[0].bound(settings, s.n), 16 + 4 * r * s.rows);
    EXPECT_EQ(powersgd_codec.phases[1].bound(settings, s.n), 4 * r * s.width);
    EXPECT_EQ(powersgd_codec.memory(settings, s.n), 4 * r * s.width);
  }
}

TEST(PowerSgd, ZeroColumnIsDrawnAgain) {
  Workers one(2, 40);
  const Floats zeros(40 * 40);
  EXPECT_EQ(one.round({zeros}), zeros);
  EXPECT_EQ(one.memory(), Bytes_(one.memory().size()));
  Floats outer(zeros.size());
  const Floats u = draws::bell(40), v = draws::bell(40, 1, 2);
  for (std::size_t i = 0; i < outer.size(); ++i) outer[i] = u[i / 40] * v[i % 40];
  EXPECT_LT(loss(outer, one.round({outer})), 1e-12);  // of rank 1: its second column is dropped
  const Floats m = draws::bell(40 * 40, 1, 3);
  one.round({m});
  for (std::size_t k = 0; k < 2; ++k) {
    float most = 0;
    for (std::size_t j = 0; j < 40; ++j)
      most = std::max(most, std::fabs(wire::get<float>(&one.memory()[4 * (40 * k + j)])));
    EXPECT_GE(most, 0x1p-15F) << "column " << k;  // s = 8 + 6 bits
    EXPECT_LT(most, 0x1p-14F) << "column " << k;
  }
}

TEST(PowerSgd, ValuesNearOverflowAreSentInParts) {
  Floats m = draws::bell(40 * 40);
  for (float& v : m) v = std::copysign(3e38F, v);
  Workers one(2, 40);
  const Floats got = one.round({m});
  EXPECT_TRUE(one.finite());
  for (std::size_t i = 0; i < m.size(); ++i) ASSERT_LT(std::fabs(got[i]), 1e30F);
  m[77] = std::numeric_limits<float>::infinity();
  one.round({m});
  EXPECT_FALSE(one.finite());
}

TEST(PowerSgd, RefusesPayloadsOfAnotherFactor) {
  const Floats m = draws::bell(kSide * kSide);
  Workers first(4, kSide), second(4, kSide);
  first.round({m});
  second.round({m});
  Bytes_ acc = first.factor();
  const auto add = [&](const Bytes_& in) {
    return powersgd_codec.reference()
        .combine({.settings = first.settings()}, m.size(), acc, in, nullptr)
        .status()
        .code();
  };
  EXPECT_EQ(add(second.factor()), Code::kOk);
  second.round({m});
  EXPECT_EQ(add(second.factor()), Code::kCorrupt);
}

// ---- The columns

TEST(PowerSgd, OrthonormalColumnsKeepTheirSpan) {
  for (const std::size_t rank : {1U, 2U, 5U, 32U}) {
    constexpr std::size_t kRows = 131;
    Floats p = draws::bell(kRows * rank, 1, 9);
    for (std::size_t i = 0; i < kRows && rank > 1; ++i)  // nearly in the first one's direction
      p[i * rank + 1] = p[i * rank] + 1e-3F * p[i * rank + 1];
    const Floats before = p;
    std::vector<double> room(kRows * rank);
    make_orthonormal(kRows, rank, p.data(), room.data());
    const auto dot = [&](const Floats& a, std::size_t k, const Floats& b, std::size_t l) {
      double sum = 0;
      for (std::size_t i = 0; i < kRows; ++i) sum += double{a[i * rank + k]} * b[i * rank + l];
      return sum;
    };
    for (std::size_t k = 0; k < rank; ++k) {
      for (std::size_t l = 0; l < rank; ++l)
        EXPECT_NEAR(dot(p, k, p, l), k == l ? 1 : 0, 3e-7) << k << ' ' << l;
      double inside = 0;
      for (std::size_t l = 0; l < rank; ++l) inside += std::pow(dot(before, k, p, l), 2);
      EXPECT_NEAR(inside / dot(before, k, before, k), 1, 1e-6) << k;
    }
  }
}

TEST(PowerSgd, DependentColumnsBecomeZero) {
  constexpr std::size_t kRows = 40, kRank = 5;
  const Floats a = draws::bell(kRows), b = draws::bell(kRows, 1, 2);
  Floats p(kRows * kRank);
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::array<float, kRank> row = {a[i], 0.0F, 2 * a[i], b[i], a[i] - b[i]};
    std::copy(row.begin(), row.end(), &p[i * kRank]);
  }
  std::vector<double> room(kRows * kRank);
  make_orthonormal(kRows, kRank, p.data(), room.data());
  for (std::size_t k = 0; k < kRank; ++k) {
    double square = 0;
    for (std::size_t i = 0; i < kRows; ++i) square += double{p[i * kRank + k]} * p[i * kRank + k];
    EXPECT_NEAR(square, k == 0 || k == 3 ? 1 : 0, 1e-6) << k;
  }
  p.assign(p.size(), 1.0F);
  p[7] = std::numeric_limits<float>::infinity();  // column 2: a sum of payloads may have overflowed
  make_orthonormal(kRows, kRank, p.data(), room.data());
  for (const float v : p) EXPECT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace tithe::powersgd
