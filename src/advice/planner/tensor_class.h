// SPDX-License-Identifier: Apache-2.0
#pragma once
// Classes of similar tensors of a plan, and the alternatives for a whole class.
//
//   class          the same choice, about the same size (within a factor of four), the same codecs to choose from;
//                  those in groups whatever their size
//   alternatives   the plan with one other option for the whole class, each with its best cut, in order of the
//                  estimated step; if compressing and not compressing are both possible, the best of each is among
//                  the first two
#include "advice/planner/plan_search.h"

namespace tithe::planner {

using TensorClass = std::vector<std::size_t>;  // tensors, by number

std::vector<TensorClass> tensor_classes(const PlanSearch& search,
                                        const Assignment& plan);  // most values first
std::vector<Assignment> alternatives(PlanSearch& search, const Assignment& plan, const TensorClass& tensors);

}  // namespace tithe::planner
