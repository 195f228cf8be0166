// SPDX-License-Identifier: Apache-2.0
#pragma once
// terngrad_shared: terngrad under scales that all ranks share (W. Wen et al., NeurIPS 2017, section 3.2: the largest of
// all workers' scales), so that the signs of W ranks add up to an integer from -W to W. Layout:
// codec/shared/int_sum/shared_levels.h, with bits = 2 and buckets of 1024 values.
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec terngrad_shared_codec;
}
