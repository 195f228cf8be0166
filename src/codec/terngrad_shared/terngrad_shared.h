// SPDX-License-Identifier: Apache-2.0
#pragma once
// terngrad_shared: -scale, 0 or scale, at random so that the mean is the value, under a scale that all ranks share
// (W. Wen et al., NeurIPS 2017, section 3.2: the largest of all workers' scales). So the signs of W ranks add up to a
// whole number from -W to W. Layout in codec/int_sum/shared_levels.h, with bits = 2 and buckets of 1024 values.
#include "tithe/codec.h"

namespace tithe {
extern const Codec terngrad_shared_codec;
}
