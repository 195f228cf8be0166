// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds settings under which given payloads can be decoded.
#include <span>

#include "tithe/seam/codec.h"

namespace tithe {

// Settings under which all these payloads (of the first phase, n values) parse: the first suitable choice of each
// word parameter, and for numbers the default, or the value with the longest payload if the default is narrower.
// kCorrupt: no settings fit.
Result<Settings> settings_of(const Codec& codec, std::size_t n, std::span<const ByteView> payloads);

}  // namespace tithe
