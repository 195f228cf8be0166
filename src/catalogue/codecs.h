// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ids of codecs.def, beside all_codecs() (tithe/seam/catalogue.h).
#include <span>

#include "tithe/seam/codec.h"

namespace tithe::catalogue {

std::span<const CodecId> ids();  // of all_codecs(), in their order

// Compiles a TITHE_CODEC_PROGRAM. Each call creates a new codec, which is never destroyed.
const Codec& program(std::string_view name);

}  // namespace tithe::catalogue
