// SPDX-License-Identifier: Apache-2.0
#pragma once
// graddrop: gradient dropping (Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", 2017), as
// HiPress implements it: of a sample of the magnitudes, the one that `ratio` of them reach is the threshold; what
// reaches it is sent, and of more than k = max(1, ceil(ratio * n)) values only the k largest, the lower index first
// among equals.
//
// dgc is the same idea a year later. It lets cap * k values through before it chooses among them, so that it chooses
// rarely and its count strays to both sides of k; graddrop never sends more than k, chooses exactly in about every
// second round, and has the smaller bound. dgc has a warm-up and the larger sample. Momentum correction, the other half
// of dgc, belongs to the feedback (tithe/spec.h) and can be had with both.
//
// Unlike HiPress, which sends what lies strictly above the threshold, a value at the threshold is sent: else equal
// values would wait forever. The sample is drawn without replacement, by (seed, round, tensor, chunk); theirs by the
// wall clock.
//
// Layout   codec/sparse/sparse.h, at most k pairs
#include "tithe/codec.h"

namespace tithe {
extern const Codec graddrop_codec;
}
