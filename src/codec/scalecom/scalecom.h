// SPDX-License-Identifier: Apache-2.0
#pragma once
// scalecom: one rank, the leader, names the indices of its k largest values, and all ranks send their values at these
// indices (Chen et al., "ScaleCom", NeurIPS 2020). The leader changes every round. Since the indices are shared, values
// add up on the way: a ring carries k values, however many ranks there are.
//
// The published form also smooths the residual; feedback=decay comes close to that.
//
// Layout   phase 0 (leader): count <= k = max(1, ceil(ratio n)) indices, and the form of the values
//                            (codec/shared/sparse/sparse.h)
//          phase 1 (sum):    value array (codec/shared/sparse/sparse_values.h)
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec scalecom_codec;
}
