// SPDX-License-Identifier: Apache-2.0
#pragma once
// Classes of similar tensors in a plan, and alternatives for a whole class.
//
// A class has the same decision, about the same size (within a factor of four) and the same allowed codecs. Grouped
// tensors form classes whatever their size. The alternatives are the plan with one other option for the whole class,
// each with its best part size, in order of the estimated step. If the class can be compressed or not, the best of both
// kinds are among the first two.
#include "advisor/planner/plan_search.h"

namespace tithe::planner {

using TensorClass = std::vector<std::size_t>;  // indices of tensors

// Classes with the most values first.
std::vector<TensorClass> tensor_classes(const PlanSearch& search, const Assignment& plan);
std::vector<Assignment> alternatives(PlanSearch& search, const Assignment& plan, const TensorClass& tensors);

}  // namespace tithe::planner
