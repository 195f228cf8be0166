// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace tithe {
namespace {

constexpr std::uint32_t kDraws = 1U << 20;
constexpr std::uint32_t kUpper = 16;  // the lower bits are not guaranteed

// Chi-square of `cell(index)` over `cells`, in standard deviations from the expectation.
template <typename Cell>
double stray(std::uint32_t cells, Cell cell) {
  std::vector<double> count(cells);
  for (std::uint32_t i = 0; i < kDraws; ++i) ++count[cell(i)];
  const double expected = static_cast<double>(kDraws) / cells;
  double chi = 0;
  for (const double c : count) chi += (c - expected) * (c - expected) / expected;
  return (chi - cells) / std::sqrt(2.0 * cells);
}

TEST(DrawHigh, EqualShares) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::uint64_t key = rng_key(7, static_cast<std::uint32_t>(round), 2, 0, 0);
    EXPECT_LT(std::fabs(stray(1024, [&](std::uint32_t i) { return draw_high(key, i) >> 22; })), 6) << round;
    EXPECT_LT(std::fabs(stray(1024, [&](std::uint32_t i) { return draw_high(key, i) >> kUpper & 1023; })), 6)
        << round;
  }
}

// Neighbouring draws, and draws of the next round at the same index, are independent.
TEST(DrawHigh, PairsFillASquareEvenly) {
  const std::uint64_t key = rng_key(7, 1, 2, 0, 0);
  const std::uint64_t next = rng_key(7, 2, 2, 0, 0);
  for (const std::uint32_t apart : {1U, 2U, 16U, 1024U})
    EXPECT_LT(std::fabs(stray(1024,
                              [&](std::uint32_t i) {
                                return draw_high(key, i) >> 27 << 5 | draw_high(key, i + apart) >> 27;
                              })),
              6)
        << apart;
  EXPECT_LT(
      std::fabs(stray(
          1024, [&](std::uint32_t i) { return draw_high(key, i) >> 27 << 5 | draw_high(next, i) >> 27; })),
      6);
}

// Each half by itself, and both halves together, for the numbers of bits that kernels use.
TEST(DrawHalf, EqualShares) {
  for (std::uint32_t round = 0; round < 20; ++round)
    for (const int bits : {15, 19, 21, 23}) {
      const std::uint64_t key = rng_key(7, round, 2, 0, 0);
      const auto half = [&](std::uint32_t i, std::uint32_t which) {
        return draw_half(key, i >> 4 << 5 | (i & 15U) | which, bits);
      };
      for (const std::uint32_t which : {0U, 16U}) {
        EXPECT_LT(std::fabs(stray(1024, [&](std::uint32_t i) { return half(i, which) >> (bits - 10); })), 6)
            << round << ", " << bits << " bits";
        EXPECT_LT(std::fabs(stray(1024,
                                  [&](std::uint32_t i) {
                                    return half(i, which) >> (bits - 5) << 5 |
                                           half(i + 1, which) >> (bits - 5);
                                  })),
                  6)
            << round << ", " << bits << " bits";
      }
      EXPECT_LT(std::fabs(stray(1024,
                                [&](std::uint32_t i) {
                                  return half(i, 0) >> (bits - 5) << 5 | half(i, 16) >> (bits - 5);
                                })),
                6)
          << round << ", " << bits << " bits";
    }
}

// A Weyl sequence is too even to be random, and the test detects it.
TEST(DrawHigh, WeakGeneratorFails) {
  EXPECT_GT(std::fabs(stray(1024, [](std::uint32_t i) { return i * 0x9e3779b9U >> 22; })), 6);
}

TEST(DrawHigh, EveryBitOfKeyAndIndexCounts) {
  for (int bit = 0; bit < 64 + 20; ++bit) {
    int changed = 0;
    constexpr int kTries = 4096;
    for (std::uint32_t i = 0; i < kTries; ++i) {
      const std::uint64_t key = mix64(i);
      const std::uint32_t index = mix32(i) >> 8;
      const std::uint32_t other = bit < 64 ? draw_high(key ^ std::uint64_t{1} << bit, index)
                                           : draw_high(key, index ^ 1U << (bit - 64));
      changed += std::popcount((draw_high(key, index) ^ other) >> 24);
    }
    const double share = changed / (8.0 * kTries);
    EXPECT_GT(share, 0.05) << bit;
    EXPECT_LT(share, 0.95) << bit;
  }
}

}  // namespace
}  // namespace tithe
