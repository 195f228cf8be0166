// SPDX-License-Identifier: Apache-2.0
#pragma once
// terngrad: rounds each value at random to -scale, 0 or scale, so that the mean is the value (W. Wen et al., NeurIPS
// 2017). Layout: codec/terngrad/ternary.h.
//
// The published form has one scale per layer: the largest magnitude, after clipping at 2.5 standard deviations. Here
// each block of 1024 values has its own: memory is read once and the error is smaller. A value v is sent with
// probability min(|v|, scale) / scale, to within 2^-22: unbiased unless cut is set. Blocks of equal magnitudes are sent
// exactly. Scales differ between ranks, so payloads do not add up; they are decoded.
#include "codec/shared/levels/terngrad_scale.h"
#include "codec/terngrad/ternary.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec terngrad_codec;
}

namespace tithe::terngrad {

enum Param : std::size_t { kCut };
inline constexpr unsigned kBits = 2;  // -1, 0 or 1

struct Pick {
  std::uint64_t key;
  float scale;
  block::Steps steps;

  Pick(std::uint64_t draws, float largest) : key(draws), scale(largest), steps(largest, 1, kBits) {}
  float held(float v) const { return std::clamp(v, -scale, scale); }
  bool sends(float v, std::size_t i) const {
    return steps.rounded(held(v), draw_half(key, static_cast<std::uint32_t>(i), steps.fraction)) != 0;
  }
};

struct Rule {
  static constexpr bool kSum = true;
  std::uint64_t key;
  float cut;

  explicit Rule(const Call& call) : key(block::key(call)), cut(static_cast<float>(call.settings[kCut])) {}
  Pick pick(const block::Stats& stats, std::size_t len) const { return {key, scale_of(cut, stats, len)}; }
};

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // terngrad_simd.cc

}  // namespace tithe::terngrad
