// SPDX-License-Identifier: Apache-2.0
#pragma once
// What fp8 and fp8_shared do with values. Blocks lie from the first value on; the format is a payload's first byte.
#include "codec/floats/fp8_format.h"

namespace tithe::fp8 {

struct Kernels {
  // The scale of each block, for its largest magnitude. False, here and below: a taken value is not finite.
  bool (*look)(std::uint8_t format, const Carry&, std::uint8_t* scales);
  // The codes under given scales; leaves what they do not send.
  bool (*send)(std::uint8_t format, const Carry&, const std::uint8_t* scales, std::uint8_t* codes);
  // look, then send, while a block is near: memory is read once.
  bool (*encode)(std::uint8_t format, const Carry&, std::uint8_t* scales, std::uint8_t* codes);
  void (*decode)(std::span<const ByteView> payloads, const Merge&, std::span<float>);
  // Codes of n values under the same scales, of `in` all numbers: acc := acc + in, rounded to codes; left, unless it is
  // null, += what that takes.
  void (*add)(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
              const std::uint8_t* in, float* left);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // fp8_simd.cc, and
void add_simd(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
              const std::uint8_t* in, float* left);  // fp8_add_simd.cc

}  // namespace tithe::fp8
