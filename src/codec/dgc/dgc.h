// SPDX-License-Identifier: Apache-2.0
#pragma once
// dgc: sends all values at or above a threshold that is estimated from a sample (Lin et al., "Deep Gradient
// Compression", 2018). If these are more than cap * k, it sends only the k largest, the lower index first among equals
// (the paper's hierarchical selection). Momentum correction, masking and clipping belong to the feedback
// (tithe/seam/spec.h), warm-up to the schedule (tithe/schedule.h).
//
//   k          max(1, ceil(ratio * n))
//   sample     codec/shared/sparse/select.h, drawn by (seed, round, tensor, chunk)
//
// Layout   codec/shared/sparse/sparse.h, at most max(k, floor(cap * k)) pairs
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec dgc_codec;
}
