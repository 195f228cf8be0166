// SPDX-License-Identifier: Apache-2.0
#pragma once
// scalecom: one rank names the places of its k largest values and all ranks send theirs there (Chen et al.,
// "ScaleCom", NeurIPS 2020). The leader changes every round. Since the places are shared, values add up on the way: a
// ring carries k of them, however many ranks there are.
//
// The published form also smooths the residual; feedback=decay comes near to that.
//
// Layout   phase 0 (leader): count <= k = max(1, ceil(ratio n)) places (codec/sparse/sparse.h), and how values will be
// written
//          phase 1 (sum):    value array (codec/sparse/sparse_values.h)
#include "tithe/codec.h"

namespace tithe {
extern const Codec scalecom_codec;
}
