// SPDX-License-Identifier: Apache-2.0
#pragma once
// qsgd: evenly spaced levels between 0 and a bucket's norm, chosen at random so that the mean is the value
// (D. Alistarh et al., NeurIPS 2017).
//
// Layout   codec/levels/buckets.h. A code is 2^(bits - 1) + level, and a level -s to s with s = 2^(bits - 1) - 1. Its
//          value is level * (1 / s) * norm, rounded to fp32 after every step. 1 / s is rounded so that level s gives
//          the norm itself.
// norm=max: the largest magnitude of the bucket: less is rounded away, equal magnitudes are sent exactly.
// norm=l2: as published; few of many values then reach a level, which is what variable-length codes are made for.
// Unbiased to within 2^(bits - 24) of a step.
#include "tithe/codec.h"

namespace tithe {
extern const Codec qsgd_codec;
}
