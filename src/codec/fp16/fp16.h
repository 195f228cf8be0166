// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp16: IEEE 754 binary16 (codec/shared/floats/fp16_format.h; layout in codec/shared/floats/half.h).
//
// Magnitudes up to 2^-25 are sent as zero and those above 65504 as 65504; the difference stays in the residual.
#include "codec/shared/floats/fp16_format.h"
#include "codec/shared/floats/half.h"

namespace tithe {
extern const Codec fp16_codec;
}

namespace tithe::fp16 {
extern const half::Kernels kSimd;  // fp16_simd.cc
}
