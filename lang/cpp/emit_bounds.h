// SPDX-License-Identifier: Apache-2.0
#pragma once
// Upper bounds for a block's values, as generated expressions over numbers that are known before the block is sent.
#include <string>

#include "lang/text/emit_nodes.h"

namespace tithe::lang {

// An upper bound for the magnitude of this f32, NaN if an operand is NaN. Empty if no bound is known.
std::string largest_float(const Checked& program, const NodeText& text, int k);

}  // namespace tithe::lang
