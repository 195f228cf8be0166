// SPDX-License-Identifier: Apache-2.0
#pragma once
// For codecs that send the values at places which are known before the values are seen: all is left, segment after
// segment, and what is sent is picked from what is still in cache.
#include <algorithm>
#include <cstddef>

#include "tithe/codec.h"

namespace tithe::codec {

// Values that are left before places among them are picked: they stay in the nearest cache, and picking from so few
// takes so short that memory stays busy.
inline constexpr std::size_t kSegment = 1024;

// Leaves all values whole: left, where there is one, becomes what is taken. True if all of it is finite.
bool leave_all(const Carry& in);

inline bool all_finite(std::span<const float> v) {
  return leave_all({.grad = v.data(), .residual = nullptr, .residual_out = nullptr, .n = v.size()});
}

// The same; after each segment pick(end) is called, which may send what lies below `end`: left_value(in, i) is then the
// value taken, and 0 belongs into in.residual_out[i], where there is one.
template <typename Pick>
bool leave_and_pick(const Carry& in, Pick pick) {
  bool finite = true;
  for (std::size_t start = 0; start < in.n; start += kSegment) {
    const std::size_t end = std::min(start + kSegment, in.n);
    finite = leave_all({.grad = in.grad + start,
                        .residual = in.residual ? in.residual + start : nullptr,
                        .residual_out = in.residual_out ? in.residual_out + start : nullptr,
                        .n = end - start}) &&
             finite;
    pick(end);
  }
  return finite;
}
inline float left_value(const Carry& in, std::size_t i) {
  return in.residual_out ? in.residual_out[i] : in.take(i);
}

}  // namespace tithe::codec
