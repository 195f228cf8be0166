// SPDX-License-Identifier: Apache-2.0
#pragma once
// bf16: the upper half of an fp32 (codec/floats/bf16_format.h; layout in codec/floats/half.h).
#include "codec/floats/bf16_format.h"
#include "codec/floats/half.h"

namespace tithe {
extern const Codec bf16_codec;
}

namespace tithe::bf16 {
extern const half::Kernels kSimd;  // bf16_simd.cc
}
