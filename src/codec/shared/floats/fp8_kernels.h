// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of fp8 and fp8_shared. Blocks start at the first value. `format` is the first byte of a payload.
#include "codec/shared/floats/fp8_format.h"

namespace tithe::fp8 {

struct Kernels {
  // Writes the scale of each block, from its largest magnitude. All bools: false if a taken value is not finite.
  bool (*find_scales)(std::uint8_t format, const EncodeInput&, std::uint8_t* scales);
  // Writes the codes under given scales, and residual_out.
  bool (*send)(std::uint8_t format, const EncodeInput&, const std::uint8_t* scales, std::uint8_t* codes);
  // find_scales and send, block by block: memory is read once.
  bool (*encode)(std::uint8_t format, const EncodeInput&, std::uint8_t* scales, std::uint8_t* codes);
  void (*decode)(std::span<const ByteView> payloads, const Merge&, std::span<float>);
  // acc := acc + in for the codes of n values under the same scales, rounded to codes. Adds the rounding error to
  // residual_out, unless that is nullptr. All codes of `in` must be finite.
  void (*add)(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
              const std::uint8_t* in, float* residual_out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // fp8_simd.cc
void add_simd(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
              const std::uint8_t* in, float* residual_out);  // fp8_add_simd.cc

}  // namespace tithe::fp8
