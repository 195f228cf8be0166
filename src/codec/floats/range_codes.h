// SPDX-License-Identifier: Apache-2.0
#pragma once
// Range-based floats: N bits, m of them mantissa, whose codes all lie within a range of magnitudes (Wang et al.,
// "FFT-based Gradient Sparsification for the Distributed Training of DNNs", HPDC 2020, section on range-based
// quantisation). Codes are consecutive floats of m mantissa bits:
//
//   steps(v)     bits of the magnitude >> (23 - m), rounded to nearest, half away from zero
//   P            2^(N-1) - 1 positive codes, as many negative ones, and 0
//   base         steps of the smallest magnitude, eps. From the largest one in closed form:
//                base = max(1, steps(largest) - P + 1), so that the P positive codes end at it
//   code         0 for 0; steps - base + 1 for positive values, P more for negative ones
//   magnitudes   below eps / 2 are 0, from there up to eps are eps, beyond the largest are the largest
//
// The paper truncates, finds eps by a search and does not say how m is chosen. Here: rounding halves the error and
// has no bias; eps in closed form is what the search converges to. Codes that no writer writes (2^N - 1, and any beyond
// the finite floats) read as the largest. With a range that holds v, |v - sent| <= max(eps / 2, 2^-(m + 1) |v|); twice
// that next to the largest float.
#include <algorithm>
#include <bit>
#include <cstdint>

namespace tithe::range {

inline constexpr int kLeastBits = 4;
inline constexpr int kMostBits = 16;
inline constexpr std::uint32_t kLargest = 0x7f7fffff;  // of the finite magnitudes

struct Head {
  int bits;
  int mantissa;
};

inline bool is_head(const Head& h) {
  return h.bits >= kLeastBits && h.bits <= kMostBits && h.mantissa >= 1 && h.mantissa <= h.bits - 2;
}

inline std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }

// The codes of one range.
struct Codes {
  int shift;               // 23 - m
  std::uint32_t positive;  // P
  std::uint32_t base;
  std::uint32_t top;       // steps of the largest magnitude
  std::uint32_t half_eps;  // bits of eps / 2

  static Codes of(const Head& head, std::uint32_t base) {
    const int shift = 23 - head.mantissa;
    const std::uint32_t positive = (1U << (head.bits - 1)) - 1;
    const float eps = std::bit_cast<float>(base << shift);
    return {shift, positive, base, std::min(base + positive - 1, kLargest >> shift), magnitude(eps * 0.5F)};
  }
  // So that the codes end at a magnitude with these bits.
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

inline std::size_t bytes_of(int bits, std::size_t codes) {
  return (static_cast<std::size_t>(bits) * codes + 7) / 8;
}

inline bool is_base(const Head& head, std::uint32_t base) {
  return base >= 1 && base <= kLargest >> (23 - head.mantissa);
}

// Code i of a run of codes that fill bytes from the lowest bit; put() adds to bytes that were 0.
inline void put(std::uint8_t* codes, int bits, std::size_t i, std::uint32_t code) {
  for (int k = 0; k < bits; ++k) {
    const std::size_t at = static_cast<std::size_t>(bits) * i + static_cast<std::size_t>(k);
    codes[at / 8] = static_cast<std::uint8_t>(codes[at / 8] | (code >> k & 1U) << (at % 8));
  }
}
inline std::uint32_t get(const std::uint8_t* codes, int bits, std::size_t i) {
  const std::size_t at = static_cast<std::size_t>(bits) * i;
  const std::size_t last = (at + static_cast<std::size_t>(bits) - 1) / 8;
  std::uint32_t word = 0;
  for (std::size_t k = at / 8; k <= last; ++k) word |= std::uint32_t{codes[k]} << (8 * (k - at / 8));
  return word >> (at % 8) & ((1U << bits) - 1);
}

// Whether no bit is set past the last code.
inline bool ends_clean(const std::uint8_t* codes, int bits, std::size_t count) {
  const std::size_t used = static_cast<std::size_t>(bits) * count;
  return used % 8 == 0 || codes[used / 8] >> (used % 8) == 0;
}

}  // namespace tithe::range
