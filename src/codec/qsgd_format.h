// SPDX-License-Identifier: Apache-2.0
#pragma once
// qsgd: evenly spaced levels between 0 and a bucket's norm, chosen at random so that the mean is the value
// (D. Alistarh et al., NeurIPS 2017).
//
// Layout   codec/buckets.h. A code is 2^(bits - 1) + level, and a level -s to s with s = 2^(bits - 1) - 1. Its value is
//          level * (1 / s) * norm, rounded to fp32 after every step. 1 / s is rounded so that level s gives the norm
//          itself.
// norm=max: the largest magnitude of the bucket: less is rounded away, equal magnitudes are sent exactly.
// norm=l2: as published; few of many values then reach a level, which is what variable-length codes are made for.
// Unbiased to within 2^(bits - 24) of a step.
#include "codec/buckets.h"

namespace tithe::qsgd {

using buckets::kHead;
using buckets::Shape;

struct Rounding {
  std::uint64_t key;
  block::Steps steps;

  Rounding(std::uint64_t draws, const Shape& shape, float norm)
      : key(draws), steps(norm, shape.steps(), shape.bits) {}
  int level(float v, std::size_t i) const {
    return steps.rounded(v, draw_half(key, static_cast<std::uint32_t>(i), steps.fraction));
  }
};

struct Levels {
  unsigned bits;
  float step;  // 1 / s
  float norm;

  Levels(const Shape& shape, float of)
      : bits(shape.bits), step(1.0F / static_cast<float>(shape.steps())), norm(of) {}
  float value(int level) const { return static_cast<float>(level) * step * norm; }
  int offset() const { return 1 << (bits - 1); }
  unsigned code(int level) const { return static_cast<unsigned>(level + offset()); }
  int level(unsigned code) const { return static_cast<int>(code) - offset(); }
};

// Values [first, len) of a bucket whose codes are 0 from there on; `at` is where it starts among all values.
void send_from(std::size_t first, std::size_t at, const Shape& shape, const Rounding& rounding, float norm,
               const Carry& in, std::uint8_t* codes);
// Values [first, n) of a decode.
void decode_from(std::size_t first, const Shape& shape, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);

double contraction(const Settings& s, std::size_t n);

// qsgd_simd.cc: with vectors where bits is 4 or 8.
bool encode_simd(const Call& call, const Carry& in, std::uint8_t* out);
void decode_simd(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);

}  // namespace tithe::qsgd
