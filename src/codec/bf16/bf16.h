// SPDX-License-Identifier: Apache-2.0
#pragma once
// bf16: the upper half of an fp32 (codec/bf16_format.h; layout in codec/half.h).
#include <cstdint>

#include "codec/bf16_format.h"
#include "tithe/codec.h"

namespace tithe::bf16 {

// bf16_simd.cc: the bodies of codec/half.h with vectors.
bool encode_simd(const Carry& in, std::uint8_t* out);
void decode_simd(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
bool combine_simd(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* left);

}  // namespace tithe::bf16
