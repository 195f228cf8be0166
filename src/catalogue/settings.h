// SPDX-License-Identifier: Apache-2.0
#pragma once
// The settings in which payloads that were written elsewhere can be read.
#include <span>

#include "tithe/seam/codec.h"

namespace tithe {

// The widest settings, or the first of the codec's choices, beside numbers as they are usual or the widest, that take
// all of these payloads of n values, which are of the first phase. kCorrupt: none do.
Result<Settings> settings_of(const Codec& codec, std::size_t n, std::span<const ByteView> payloads);

}  // namespace tithe
