// SPDX-License-Identifier: Apache-2.0
#pragma once
// qsgd: evenly spaced levels between 0 and a bucket's norm, chosen at random so that the mean is the value
// (D. Alistarh et al., NeurIPS 2017).
//
// Layout   codec/buckets.h. A code is sign << (bits - 1) | level. With s = 2^(bits - 1) - 1 its value is
//          level * (1 / s) * norm, rounded to fp32 after every step, with that sign. 1 / s is
//          rounded so that level s gives the norm itself.
// norm=max: the largest magnitude of the bucket: less is rounded away, equal magnitudes are sent exactly.
// norm=l2: as published; few of many values then reach a level, which is what variable-length codes are made for.
// Unbiased to within 2^-23 of the norm.
#include "codec/buckets.h"

namespace tithe::qsgd {

using buckets::kHead;
using buckets::Shape;

// A draw gives the fraction of a step: so many bits that steps() of them fit into 23.
inline int fraction_bits(unsigned bits) { return 24 - static_cast<int>(bits); }

struct Rounding {
  std::uint64_t key;
  unsigned bits;
  block::Steps steps;

  Rounding(std::uint64_t draws, const Shape& shape, float norm)
      : key(draws), bits(shape.bits), steps(norm, shape.steps() << fraction_bits(shape.bits)) {}
  unsigned code(float v, std::size_t i) const {
    const int fraction = fraction_bits(bits);
    const std::uint32_t draw = draw_high(key, static_cast<std::uint32_t>(i)) >> (32 - fraction);
    const unsigned level = (steps.count(v) + draw) >> fraction;
    return level | unsigned{std::signbit(v)} << (bits - 1);
  }
};

struct Levels {
  unsigned bits;
  float step;  // 1 / s
  float norm;

  Levels(const Shape& shape, float of)
      : bits(shape.bits), step(1.0F / static_cast<float>(shape.steps())), norm(of) {}
  float value(unsigned code) const {
    const unsigned sign = code >> (bits - 1);
    const float magnitude = static_cast<float>(code - (sign << (bits - 1))) * step * norm;
    return sign != 0 ? -magnitude : magnitude;
  }
};

// Values [first, len) of a bucket whose codes are 0 from there on; `at` is where it starts among all values.
void send_from(std::size_t first, std::size_t at, const Shape& shape, const Rounding& rounding, float norm,
               const Carry& in, std::uint8_t* codes);
// Values [first, n) of a decode.
void decode_from(std::size_t first, const Shape& shape, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);

// qsgd_simd.cc: with vectors where bits is 4 or 8.
bool encode_simd(const Call& call, const Carry& in, std::uint8_t* out);
void decode_simd(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);

}  // namespace tithe::qsgd
