// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums in one fixed order, so that a sum has the same bits for every instruction set and number of threads.
//
// There are kFoldLanes running sums: value i is added to lane i % kFoldLanes. Then the lanes are added pairwise, lane k
// to lane k + half, halving until one is left. Any SIMD width that divides kFoldLanes computes this directly.
#include <array>
#include <cstddef>

namespace tithe {

inline constexpr std::size_t kFoldLanes = 16;

template <typename T>
struct Fold {
  std::array<T, kFoldLanes> lane{};
  void add(std::size_t i, T v) { lane[i % kFoldLanes] += v; }
  T total() const {
    auto l = lane;
    for (std::size_t half = kFoldLanes / 2; half > 0; half /= 2)
      for (std::size_t k = 0; k < half; ++k) l[k] += l[k + half];
    return l[0];
  }
};

}  // namespace tithe
