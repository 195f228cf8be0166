// SPDX-License-Identifier: Apache-2.0
#pragma once
// qtopk: the k values of largest magnitude, selected as in topk, at two bytes each instead of eight. The rounding error
// stays in the residual, bit for bit. The combination of selection and quantisation is from Basu et al.,
// "Qsparse-local-SGD", 2019; the 8-bit float is our own.
//
//   level    the bits of a magnitude, rounded half up to 8 exponent and 3 mantissa bits; at most kTopLevel. Eight
//            levels are an octave
//   code     sign << 7 | (top level - level). A value more than 127 levels (16 octaves) below the top is not sent
//   exact    a value and its level differ by at most one part in sixteen, so their difference is a float
//
// Layout   B = ceil(n / 255) blocks of 255 values, so that a count fits in a byte:
//   u32 count | u16 top level | u8 values sent[B] | u8 index within the block[count] | u8 code[count]
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec qtopk_codec;
}
