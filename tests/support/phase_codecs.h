// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small codecs for features that no listed codec uses yet: laws, and a memory.
#include "tithe/seam/codec.h"

namespace tithe::testing {

// max, then sum: all ranks share one power of two as the step, and sum integer multiples of it (i16).
extern const Codec shared_step_codec;
// leader, then sum: one rank picks the tenth of the places where its values are largest, all send theirs.
extern const Codec led_indices_codec;

// sum: integer multiples of a step (i32). The step depends on the previous round's result and is stored in the
// codec's memory; it is 1 in the first round.
extern const Codec kept_step_codec;

}  // namespace tithe::testing
