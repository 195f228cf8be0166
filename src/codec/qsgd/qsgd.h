// SPDX-License-Identifier: Apache-2.0
#pragma once
// qsgd: rounds at random to evenly spaced levels between 0 and a bucket's norm, so that the mean is the value (D.
// Alistarh et al., NeurIPS 2017).
//
// Layout   levels/buckets.h. A code is 2^(bits - 1) + level, with levels from -s to s = 2^(bits - 1) - 1. It
//          stands for level * (1 / s) * norm, rounded to fp32 after every operation; s * (1 / s) is then 1, and level s
//          gives the norm itself.
// norm=max: the bucket's largest magnitude. The error is smaller, and equal magnitudes are sent exactly.
// norm=l2: as published. Most values of a large bucket then round to 0; variable-length codes would suit that.
// Unbiased to within 2^(bits - 24) of a step.
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec qsgd_codec;
}
