// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp8: 8-bit floats, with a power-of-two scale per block of 32 values (Rouhani et al., "Microscaling Data Formats for
// Deep Learning", 2023; OCP Microscaling Formats 1.0). 8.25 bits per value.
//
//   e4m3   sign, 4 exponent and 3 fraction bits; largest 448, no infinity, 0x7f and 0xff are NaN
//   e5m2   sign, 5 exponent and 2 fraction bits; largest 57344, infinity and NaN as in binary16
//   scale  2^(s - 127), with the smallest s for which the block's largest magnitude fits; at least 2^-110, since below
//          that a product could be subnormal. Only magnitudes above 1.75 * 2^127 saturate (with the standard's own rule
//          the top eighth of a block's range does)
//   code   value / scale, rounded to nearest even, subnormals kept
//
// The rounding error is a float, so taken == sent + residual_out holds bit for bit.
//
// In a ring, each hop decodes, adds and encodes again: its rounding error stays in that rank's residual, and the scale
// follows the partial sums. fp8_shared uses scales that all ranks share and adds codes without decoding them.
//
// Layout   u8 format: 0 e4m3, 1 e5m2 | per block of 32 values: u8 s | n x u8 codes
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec fp8_codec;
}
