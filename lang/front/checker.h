// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks a File: resolves names, assigns types, stages and ranges, and rejects programs that could overflow, divide
// by zero, send a code that its type cannot hold, or decode an item that no phase sends.
#include <vector>

#include "lang/front/ast.h"
#include "lang/front/checked.h"

namespace tithe::lang {

// The possible values of an integer or word parameter, at most 256 in a valid program; empty for a real parameter.
std::vector<double> values_of(const Param& param);

// The checked phases of every combination of values_of(); the first parameter varies slowest. Adds the problems of
// the first combination that has any. Returns at least one combination if there are no problems.
std::vector<std::vector<Checked>> check(const File& file, Problems& problems);

// The author's claim in the combination of `of`, as a program of plan nodes. `where` selects Claim::where (a bool)
// instead of Claim::value (an f64). A claim of errors also reads the value in question and the largest magnitude:
// kArgument 0 and 1, both f64.
Checked check_claim(const File& file, const Claim& claim, bool where, const Checked& of, Problems& problems);

}  // namespace tithe::lang
