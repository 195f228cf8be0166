// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two small codecs of two phases, for the laws that no listed codec uses yet.
#include "tithe/codec.h"

namespace tithe::testing {

// max, then sum: all ranks agree on one power of two as the step, then add whole numbers of steps (i16).
extern const Codec shared_step_codec;
// leader, then sum: one rank picks the tenth of the places where its values are largest, all send theirs.
extern const Codec led_places_codec;

}  // namespace tithe::testing
