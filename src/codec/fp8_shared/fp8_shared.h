// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp8_shared: fp8 under scales that all ranks share, so that codes add up on the way (Peng et al., "FP8-LM", 2023;
// there one scale per tensor).
//
//   scales   per block of 32 values the largest scale of all ranks (max phase), times the smallest power of two that is
//            not below the number of ranks: no sum saturates. Values too large for such a scale are reported as not
//            finite. This costs the lowest of 17 (e5m2: 31) octaves, not precision. (The published factor for sums,
//            1 / sqrt(ranks), may saturate.)
//   add      adds codes as floats and rounds the sum to a code. The rounding error goes to the residual of the rank
//            that adds, as in bf16
// Compared with fp8: a ring sends as many bytes but does not decode; a block has the scale of the whole sum from the
// first hop on, not that of the partial sum.
//
// Layout   phase 0 (max): u16 ranks counted | u8 format | u8 s per block
//          phase 1 (sum): a payload of fp8
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec fp8_shared_codec;
}
