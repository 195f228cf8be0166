// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp8: 8-bit floats with a scale per block of 32 values, a power of two (Rouhani et al., "Microscaling Data Formats for
// Deep Learning", 2023; OCP Microscaling Formats 1.0). 8.25 bits per value.
//
//   e4m3   sign, 4 exponent and 3 fraction bits; largest 448, no infinity, 0x7f and 0xff are NaN
//   e5m2   sign, 5 exponent and 2 fraction bits; largest 57344, infinity and NaN as in binary16
//   scale  2^(s - 127) with s the smallest that lets the block's largest magnitude fit; at least 2^-110, below which
//          a product could leave the normal floats. Nothing saturates (the standard's own rule lets the top eighth)
//          but what is beyond 1.75 * 2^127
//   code   value / scale, rounded to nearest even, subnormals kept
//
// What rounding takes is a float, so taken == sent + left holds bit for bit.
//
// What a hop of a ring rounds off stays in its rank's residual, and a block's scale follows the values at hand. In
// fp8_shared the scales are those of all ranks, and codes add up without being decoded.
//
// Layout   u8 format: 0 e4m3, 1 e5m2 | per block of 32 values: u8 s | n x u8 codes
#include "tithe/codec.h"

namespace tithe {
extern const Codec fp8_codec;
}
