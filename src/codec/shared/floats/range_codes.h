// SPDX-License-Identifier: Apache-2.0
#pragma once
// Range-based floats: N bits, m of them mantissa; all codes lie in one range of magnitudes (Wang et al., "FFT-based
// Gradient Sparsification for the Distributed Training of DNNs", HPDC 2020, section on range-based quantisation). The
// codes represent consecutive floats of m mantissa bits:
//
//   steps(v)     bits of the magnitude >> (23 - m), rounded to nearest, half away from zero
//   P            2^(N-1) - 1 positive codes, as many negative ones, and 0
//   base         steps(eps), with eps the smallest magnitude above 0. It follows from the largest magnitude:
//                base = max(1, steps(largest) - P + 1), so the P positive codes end at the largest
//   code         0 for 0; steps - base + 1 for positive values, P more for negative ones
//   magnitudes   below eps / 2 become 0, from eps / 2 to eps become eps, above the largest become the largest
//
// The paper truncates, searches for eps and does not say how m is chosen. Here values are rounded, which halves the
// error and has no bias, and eps has a closed form, to which the search converges. Codes that no encoder writes (2^N -
// 1, and codes beyond the finite floats) decode to the largest. For v in the range, |v - sent| <= max(eps / 2, 2^-(m +
// 1) |v|); next to the largest float twice that.
#include <algorithm>
#include <bit>
#include <cstdint>

namespace tithe::range {

inline constexpr int kMinBits = 4;
inline constexpr int kMaxBits = 16;
inline constexpr std::uint32_t kLargest = 0x7f7fffff;  // bits of the largest finite magnitude

struct Head {
  int bits;
  int mantissa;
  unsigned width() const { return static_cast<unsigned>(bits); }  // of a code in bit_packing.h
};

inline bool is_head(const Head& h) {
  return h.bits >= kMinBits && h.bits <= kMaxBits && h.mantissa >= 1 && h.mantissa <= h.bits - 2;
}

inline std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }

// The codes of one range.
struct Codes {
  int shift;               // 23 - m
  std::uint32_t positive;  // P
  std::uint32_t base;
  std::uint32_t top;       // steps(largest)
  std::uint32_t half_eps;  // bits of eps / 2

  static Codes of(const Head& head, std::uint32_t base) {
    const int shift = 23 - head.mantissa;
    const std::uint32_t positive = (1U << (head.bits - 1)) - 1;
    const float eps = std::bit_cast<float>(base << shift);
    return {shift, positive, base, std::min(base + positive - 1, kLargest >> shift), magnitude(eps * 0.5F)};
  }
  // The codes that end at the magnitude with the bits `largest`.
  static Codes ending_at(const Head& head, std::uint32_t largest) {
    const int shift = 23 - head.mantissa;
    const std::uint32_t positive = (1U << (head.bits - 1)) - 1;
    const std::uint32_t steps = std::min((largest + (1U << (shift - 1))) >> shift, kLargest >> shift);
    return of(head, steps > positive ? steps - positive + 1 : 1);
  }

  std::uint32_t pack(float v) const {
    const std::uint32_t mag = magnitude(v);
    if (mag < half_eps) return 0;
    const std::uint32_t steps = std::clamp((mag + (1U << (shift - 1))) >> shift, base, top);
    return steps - base + 1 + (std::bit_cast<std::uint32_t>(v) >> 31) * positive;
  }
  float unpack(std::uint32_t code) const {
    if (code == 0) return 0.0F;
    const std::uint32_t negative = code > positive;
    const std::uint32_t steps = std::min(code - negative * positive + base - 1, top);
    return std::bit_cast<float>(negative << 31 | steps << shift);
  }
};

inline bool is_base(const Head& head, std::uint32_t base) {
  return base >= 1 && base <= kLargest >> (23 - head.mantissa);
}

}  // namespace tithe::range
