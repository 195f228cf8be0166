// SPDX-License-Identifier: Apache-2.0
#pragma once
// What terngrad and terngrad_shared have in common: the scale of 1024 values, and what rounding to it loses.
#include <algorithm>
#include <cmath>

#include "codec/common/block.h"

namespace tithe::terngrad {

inline constexpr std::size_t kScaledValues = 1024;  // that share a scale
inline constexpr ParamSpec kCutParam = {"cut", 0, 0, 100,
                                        "largest scale in standard deviations of its block (published: 2.5); "
                                        "biased; 0 = the largest magnitude"};

// The scale of a block; cut is in standard deviations of normal values, which are sqrt(pi / 2) mean magnitudes; 0: not
// cut.
inline float scale_of(float cut, const block::Look& look, std::size_t len) {
  const float deviation = 1.25331414F * look.mean(len);
  return cut > 0.0F ? std::min(cut * deviation, look.most()) : look.most();
}

// Of one large value and others of 1 / sqrt(len) of it the others are lost most; cutting, the first parameter, adds
// less than all there is.
inline double contraction(const Settings& s, std::size_t n) {
  const auto len = static_cast<double>(std::clamp(n, std::size_t{1}, kScaledValues));
  return (std::sqrt(len) - 1) / 2 + (s[0] > 0 ? 1 : 0) + 0x1p-20;
}

}  // namespace tithe::terngrad
