// SPDX-License-Identifier: Apache-2.0
#pragma once
// rangefloat: floats of N bits, m of them mantissa, whose codes all lie within the range of the values (Wang et al.,
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
// has no bias; eps in closed form is what the search converges to; m is the one with the least squared error on a
// sample of the values. Codes that no writer writes (2^N - 1, and any beyond the finite floats) read as the largest.
//
// The range belongs to a block of 1024 values (its own largest magnitude), which one pass over memory finds, or is
// given. With its own range |v - sent| <= max(eps / 2, 2^-(m + 1) |v|); twice that next to the largest float.
//
// Layout   u8 N | u8 m | u16 0, then per block of 1024 values (the last one may be shorter):
//          u32 base | codes, N bits each, filling bytes from the lowest bit; the bits left in the last byte are 0
#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/bytes.h"
#include "tithe/codec.h"

namespace tithe::rangefloat {

inline constexpr std::size_t kHead = 4;
inline constexpr std::size_t kBlock = 1024;
inline constexpr std::size_t kBlockHead = 4;
inline constexpr int kLeastBits = 4;
inline constexpr int kMostBits = 16;
inline constexpr std::uint32_t kLargest = 0x7f7fffff;  // of the finite magnitudes

struct Head {
  int bits;
  int mantissa;
};

inline std::size_t block_bytes(int bits, std::size_t len) {
  return kBlockHead + (static_cast<std::size_t>(bits) * len + 7) / 8;
}
inline std::size_t bytes(int bits, std::size_t n) {
  return kHead + n / kBlock * block_bytes(bits, kBlock) + (n % kBlock ? block_bytes(bits, n % kBlock) : 0);
}

inline std::uint32_t magnitude(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }

// The codes of one block.
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

// rangefloat_simd.cc, for N = 8. `mantissa` is chosen, `largest` the bits of a given range or 0; encode says whether
// all taken values are finite. decode's payloads are checked, and their N is 8.
bool encode_simd(const Head& head, std::uint32_t largest, const Carry& in, std::uint8_t* out);
void decode_simd(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);

// The bodies for blocks and values that the vectors leave over.
bool encode_block(const Head& head, std::uint32_t largest, const Carry& in, std::uint8_t* out);
float value_at(ByteView payload, std::size_t i);

}  // namespace tithe::rangefloat
