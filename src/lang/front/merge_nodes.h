// SPDX-License-Identifier: Apache-2.0
#pragma once
// Nodes that compute the same are one: a name's expression is checked wherever the name stands, and what two places say
// alike is computed once. A plan's whole number whose range has one value is a constant, and one side is left of an
// `if` that a constant decides.
#include "lang/front/checked.h"

namespace tithe::lang {

// The numbers of nodes stay; those that nothing reads are constants.
Checked with_merged_nodes(Checked program);

}  // namespace tithe::lang
