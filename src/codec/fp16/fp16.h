// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp16: IEEE 754 binary16 (codec/fp16_format.h; layout in codec/half.h).
//
// Gradients below 2^-25 are sent as zero and stay in the residual; beyond 65504 the rest stays there too.
#include <cstdint>

#include "codec/fp16_format.h"
#include "tithe/codec.h"

namespace tithe::fp16 {

// fp16_simd.cc: the bodies of codec/half.h with vectors.
bool encode_simd(const Carry& in, std::uint8_t* out);
void decode_simd(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
bool combine_simd(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* left);

}  // namespace tithe::fp16
