// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by terngrad and terngrad_shared: the scale of a block of 1024 values, and the bounds of what a round loses.
#include <algorithm>
#include <cmath>

#include "codec/shared/common/block.h"

namespace tithe::terngrad {

inline constexpr std::size_t kScaledValues = 1024;  // values that share a scale
inline constexpr ParamSpec kCutParam = {"cut", 0, 0, 100,
                                        "largest scale in standard deviations of its block (published: 2.5); "
                                        "biased; 0 = the largest magnitude"};

// The scale of a block. cut: in standard deviations, estimated as sqrt(pi / 2) mean magnitudes (exact for normal
// values); 0: not cut.
inline float scale_of(float cut, const block::Stats& stats, std::size_t len) {
  const float deviation = 1.25331414F * stats.mean(len);
  return cut > 0.0F ? std::min(cut * deviation, stats.most()) : stats.most();
}

// Traits::contraction. The worst block has one large value and others of 1 / sqrt(len) of it. Cutting (the first
// parameter) adds less than 1.
inline double contraction(const Settings& s, std::size_t n) {
  const auto len = static_cast<double>(std::clamp(n, std::size_t{1}, kScaledValues));
  return (std::sqrt(len) - 1) / 2 + (s[0] > 0 ? 1 : 0) + 0x1p-20;
}

// Traits::error.
inline double error(const Settings&, double, double largest) { return largest; }

}  // namespace tithe::terngrad
