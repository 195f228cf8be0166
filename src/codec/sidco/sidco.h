// SPDX-License-Identifier: Apache-2.0
#pragma once
// sidco: the values at or above a threshold that a distribution fitted to the magnitudes gives, stage after stage
// (Abdelmoniem et al., "An Efficient Statistical-based Gradient Compression Technique for Distributed Training
// Systems", 2021). The fits stand in sidco_fit.h.
//
// Unlike the published code,
//   - the number of stages is found within one encode: the first that the sample itself says gives between 0.8 and 1.2
//     times the ratio. Theirs is moved by one every five rounds after what was sent; a codec keeps no state;
//   - a stage aims at its share of all values, given how many the stage before really left: errors do not add up;
//   - where no number of stages fits (constants, few distinct values), the threshold is the sample's own quantile, as
//     in dgc. Theirs sends nothing of a constant tensor;
//   - moments are those of a sample (codec/sparse/select.h, drawn by (seed, round, tensor, chunk)): sample=1 takes all
//   values.
// Beyond cap * k values exactly the k = max(1, ceil(ratio * n)) largest are sent, the lower index first among equals.
//
// Layout   codec/sparse/sparse.h, at most max(k, floor(cap * k)) pairs
#include "tithe/codec.h"

namespace tithe {
extern const Codec sidco_codec;
}
