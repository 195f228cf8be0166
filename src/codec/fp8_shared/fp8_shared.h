// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp8_shared: fp8 under scales that all ranks share, so that codes add up on the way (Peng et al., "FP8-LM", 2023;
// there one scale per tensor).
//
//   scales   per block of 32 values the largest of all ranks' (max phase), times the smallest power of two that is not
//            below the number of ranks: no sum saturates, and values for which there is no such scale are reported as
//            not finite. The published 1 / sqrt(ranks) takes the risk. What it costs
//            are the lowest octaves of 17 (e5m2: 31), not precision
//   add      codes as floats; the sum is rounded to a code again. What that takes goes to the residual of the rank
//            that added, as in bf16
// Beside fp8: a ring sends the same bytes but does not decode; there a block's scale follows the partial sum, here it
// is that of the whole from the first hop.
//
// Layout   phase 0 (max): u16 ranks counted | u8 format | u8 s per block
//          phase 1 (sum): a payload of fp8
#include "tithe/codec.h"

namespace tithe {
extern const Codec fp8_shared_codec;
}
