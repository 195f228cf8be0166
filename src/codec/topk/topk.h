// SPDX-License-Identifier: Apache-2.0
#pragma once
// topk: sends the k values of largest magnitude, exactly; the lower index first among equals. Zeros are never sent.
//
//   block    other than 0: the largest of each so many values, whose share is the same wherever they stand. SparseLoCo
//            (2025) sends 64 of 4,096 so, at 2 bits each, and forgets a part of the rest
//
// Layout   codec/shared/sparse/sparse.h, at most k = max(1, ceil(ratio * n)) pairs; of each block as many
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec topk_codec;
}
