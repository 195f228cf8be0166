// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors of a plan that are alike, and what else they could be together.
//
//   alike          the same choice, about the same size (within a factor of four), the same codecs to choose from;
//                  those in groups whatever their size
//   alternatives   the plan with one other option for all of them, each at the cut that suits it best, what the
//                  estimate finds shortest first; where to compress or not is another option, the best such is among
//                  the first two
#include "advice/planner/plan_search.h"

namespace tithe::planner {

using Alike = std::vector<std::size_t>;  // tensors, by number

std::vector<Alike> alike(const Board& board, const Assignment& plan);  // most values first
std::vector<Assignment> alternatives(Board& board, const Assignment& plan, const Alike& tensors);

}  // namespace tithe::planner
