// SPDX-License-Identifier: Apache-2.0
#pragma once
// Upper bounds of values, in generated text: from what is known before a block is sent.
#include <string>

#include "lang/text/emit_nodes.h"

namespace tithe::lang {

// No magnitude of this f32 is above it; NaN where it is made of a NaN. Empty: nobody knows before it is computed.
std::string largest_float(const Checked& program, const NodeText& text, int k);

}  // namespace tithe::lang
