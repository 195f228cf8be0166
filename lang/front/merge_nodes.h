// SPDX-License-Identifier: Apache-2.0
#pragma once
// Common subexpression elimination and constant folding. The checker evaluates a binding's expression at every use,
// so equal nodes are frequent. An integer of stage plan whose range has one value becomes a constant, and an `if`
// with a constant condition becomes its taken branch.
#include "lang/front/checked.h"

namespace tithe::lang {

// Node numbers do not change; unused nodes become constants.
Checked with_merged_nodes(Checked program);

}  // namespace tithe::lang
