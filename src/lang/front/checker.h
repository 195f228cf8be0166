// SPDX-License-Identifier: Apache-2.0
#pragma once
// A File to a Checked program: looks up names, gives types, stages and ranges, and refuses what could overflow,
// divide by zero, send a code that its type does not hold, or decode what was not sent.
#include <vector>

#include "lang/front/ast.h"
#include "lang/front/checked.h"

namespace tithe::lang {

// The values that a whole-number or word parameter can have; empty: a real one. A checked one has at most 256.
std::vector<double> values_of(const Param& param);

// All combinations of values_of(), the first parameter's changing slowest, and of each its phases; what is wrong with
// the first that is not in order. At least one where there is no problem.
std::vector<std::vector<Checked>> check(const File& file, Problems& problems);

// The author's claim, in the combination of `of`, as a program of plan nodes: Claim::value, whose result is f64, or
// Claim::where, whose result is a bool. A claim of errors reads the value that errs and the largest magnitude beside
// it: kArgument 0 and 1, both f64.
Checked check_claim(const File& file, const Claim& claim, bool where, const Checked& of, Problems& problems);

}  // namespace tithe::lang
