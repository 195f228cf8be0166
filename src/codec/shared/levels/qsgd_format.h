// SPDX-License-Identifier: Apache-2.0
#pragma once
// The levels of qsgd and qsgd_shared (meaning and layout: codec/qsgd/qsgd.h).
#include "codec/shared/levels/buckets.h"

namespace tithe::qsgd {

using buckets::kHead;
using buckets::LevelFormat;

struct Rounding {
  std::uint64_t key;
  block::Steps steps;

  Rounding(std::uint64_t draws, const LevelFormat& format, float norm)
      : key(draws), steps(norm, format.steps(), format.bits) {}
  int level(float v, std::size_t i) const {
    return steps.rounded(v, draw_half(key, static_cast<std::uint32_t>(i), steps.fraction));
  }
};

struct Levels {
  unsigned bits;
  float step;  // 1 / s
  float norm;

  Levels(const LevelFormat& format, float of)
      : bits(format.bits), step(1.0F / static_cast<float>(format.steps())), norm(of) {}
  float value(int level) const { return static_cast<float>(level) * step * norm; }
  int offset() const { return 1 << (bits - 1); }
  unsigned code(int level) const { return static_cast<unsigned>(level + offset()); }
  int level(unsigned code) const { return static_cast<int>(code) - offset(); }
};

// Encodes values [first, len) of a bucket; the bytes of their codes are 0 before. `at`: index of the bucket's first
// value.
void send_from(std::size_t first, std::size_t at, const LevelFormat& format, const Rounding& rounding,
               float norm, const Carry& in, std::uint8_t* codes);
// Decodes values [first, n).
void decode_from(std::size_t first, const LevelFormat& format, std::span<const ByteView> payloads,
                 const Merge& how, std::span<float> out);

double contraction(const Settings& s, std::size_t n);

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // qsgd_simd.cc

}  // namespace tithe::qsgd
