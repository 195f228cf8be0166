// SPDX-License-Identifier: Apache-2.0
#pragma once
// The levels of qsgd and qsgd_shared (codec/qsgd/qsgd.h has their meaning and layout).
#include "codec/levels/buckets.h"

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

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // qsgd_simd.cc

}  // namespace tithe::qsgd
