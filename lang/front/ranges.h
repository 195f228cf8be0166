// SPDX-License-Identifier: Apache-2.0
#pragma once
// Interval arithmetic: the range of an operator's result from the ranges of its operands. With these ranges the
// checker proves that no values and no settings make a program overflow, divide by zero or send a code that its type
// cannot hold.
#include <array>

#include "lang/front/checked.h"

namespace tithe::lang {

// The range of a type.
Range whole_range(Type type);
Range joined(Range a, Range b);
inline bool within(Range r, Range all) { return r.low >= all.low && r.high <= all.high; }
// The range of a result before it is limited to its type: for integers that of exact arithmetic.
Range range_of(Op op, Type type, const std::array<Range, 3>& in, unsigned index);
// Likewise for comparisons of two integers or bools.
inline bool compares(Op op) { return op >= Op::kLess && op <= Op::kNotEqual; }
Range of_comparison(Op op, Range a, Range b);

}  // namespace tithe::lang
