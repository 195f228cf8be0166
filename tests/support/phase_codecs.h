// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small codecs for what no listed codec uses yet: laws, and a memory.
#include "tithe/seam/codec.h"

namespace tithe::testing {

// max, then sum: all ranks agree on one power of two as the step, then add whole numbers of steps (i16).
extern const Codec shared_step_codec;
// leader, then sum: one rank picks the tenth of the places where its values are largest, all send theirs.
extern const Codec led_indices_codec;

// sum: whole numbers of a step (i32). The step of a round is chosen for what arrived in the round before and kept as
// the codec's memory; 1 in the first round.
extern const Codec kept_step_codec;

}  // namespace tithe::testing
