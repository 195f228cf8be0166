// SPDX-License-Identifier: Apache-2.0
#pragma once
// Codecs that are not in codecs.def but come while a program runs.
#include "tithe/codec.h"

namespace tithe {

// Makes a codec known to find_codec() and id_of() from now on, to all threads; it must stay for ever. The caller sees
// to it that neither name nor id is known yet.
void add_loaded_codec(const Codec& codec, CodecId id);

}  // namespace tithe
