// SPDX-License-Identifier: Apache-2.0
#pragma once
// bf16: the upper half of an fp32 (codec/shared/floats/bf16_format.h; layout in codec/shared/floats/half.h).
#include "codec/shared/floats/bf16_format.h"
#include "codec/shared/floats/half.h"

namespace tithe {
extern const Codec bf16_codec;
}

namespace tithe::bf16 {
extern const half::Kernels kSimd;  // bf16_simd.cc
}
