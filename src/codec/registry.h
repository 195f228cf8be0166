// SPDX-License-Identifier: Apache-2.0
#pragma once
// One declaration per line of codecs.def; registry.cc turns them into the table.
#include "tithe/codec.h"

namespace tithe {
#define TITHE_CODEC(name, id) extern const Codec name##_codec;
#include "tithe/codecs.def"
#undef TITHE_CODEC
}  // namespace tithe
