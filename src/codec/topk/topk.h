// SPDX-License-Identifier: Apache-2.0
#pragma once
// topk: sends the k values of largest magnitude, exactly; the lower index first among equals. Zeros are never sent.
//
// Layout   codec/shared/sparse/sparse.h, at most k = max(1, ceil(ratio * n)) pairs
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec topk_codec;
}
