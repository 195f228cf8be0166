// SPDX-License-Identifier: Apache-2.0
#pragma once
// sidco: sends the values at or above a threshold, which comes from a distribution fitted to the magnitudes in several
// stages (Abdelmoniem et al., "An Efficient Statistical-based Gradient Compression Technique for Distributed Training
// Systems", 2021). The fits are in sidco_fit.h.
//
// Differences from the published code:
//   - the number of stages is found within one encode: the smallest number whose threshold, on the sample, selects
//     between 0.8 and 1.2 times the ratio. The published code changes it by one every five rounds, from the number of
//     values sent; a codec here keeps no state
//   - a stage aims at its share of all values, given how many values the stage before really kept: errors do not add up
//   - if no number of stages works (constants, few distinct values), the threshold is the sample's own quantile, as in
//     dgc. The published code sends nothing of a constant tensor
//   - moments are computed from a sample (sparse/select.h, drawn by (seed, round, tensor, chunk)); sample=1 takes
//     all values
// If more than cap * k values reach the threshold, exactly the k = max(1, ceil(ratio * n)) largest are sent, the lower
// index first among equals.
//
// Layout   codec/shared/sparse/sparse.h, at most max(k, floor(cap * k)) pairs
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec sidco_codec;
}
