// SPDX-License-Identifier: Apache-2.0
#pragma once
// topk: sends the k values of largest magnitude, exactly; the lower index first among equals. Zeros are never sent.
//
//   block    other than 0: selects the largest values of each block of this length, so the share of a block does not
//            depend on its position. SparseLoCo (2025) sends 64 of 4,096 values, at 2 bits each, and discards a part of
//            the rest
//
// Layout   codec/shared/sparse/sparse.h, at most k = max(1, ceil(ratio * n)) pairs, or k of each block's length per
// block
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec topk_codec;
}
