// SPDX-License-Identifier: Apache-2.0
#pragma once
// graddrop: gradient dropping (Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", 2017), as
// HiPress implements it. The threshold is the magnitude that a fraction `ratio` of a sample reaches. All values that
// reach it are sent; if these are more than k = max(1, ceil(ratio * n)), only the k largest, the lower index first
// among equals.
//
// dgc follows the same idea. It sends up to cap * k values before it selects exactly, so it rarely does, and its count
// varies to both sides of k. graddrop never sends more than k, selects exactly in about every second round, and has the
// smaller bound. dgc has a warm-up and a larger sample. Momentum correction, the other half of dgc, belongs to the
// feedback (tithe/seam/spec.h) and works with both.
//
// HiPress sends only values strictly above the threshold; here a value at the threshold is sent, or equal values would
// never be. The sample is drawn without replacement, by (seed, round, tensor, chunk); HiPress draws by the wall clock.
//
// Layout   codec/shared/sparse/sparse.h, at most k pairs
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec graddrop_codec;
}
