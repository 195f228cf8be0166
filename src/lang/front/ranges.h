// SPDX-License-Identifier: Apache-2.0
#pragma once
// The range of an operator's result, from the ranges of its operands: so that nothing overflows, divides by zero or
// sends a code that its type does not hold, for no values and no settings.
#include <array>

#include "lang/front/checked.h"

namespace tithe::lang {

// All values of a type.
Range whole_range(Type type);
Range joined(Range a, Range b);
inline bool within(Range r, Range all) { return r.low >= all.low && r.high <= all.high; }
// The range of a result of this type before the type bounds it: of whole numbers what exact arithmetic gives.
Range range_of(Op op, Type type, const std::array<Range, 3>& in, unsigned index);
// The same of a comparison of two whole numbers or truths.
inline bool compares(Op op) { return op >= Op::kLess && op <= Op::kNotEqual; }
Range of_comparison(Op op, Range a, Range b);

}  // namespace tithe::lang
