// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ids of codecs.def, beside all_codecs() (tithe/seam/catalogue.h).
#include <span>

#include "tithe/seam/codec.h"

namespace tithe::catalogue {

std::span<const CodecId> ids();  // of all_codecs(), in their order

const Codec& program(
    std::string_view name);  // a TITHE_CODEC_PROGRAM; made anew with each call, and stays for ever

}  // namespace tithe::catalogue
