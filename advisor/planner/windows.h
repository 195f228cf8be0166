// SPDX-License-Identifier: Apache-2.0
#pragma once
// Planning for many local steps (docs/guide/local_steps.md): each fragment of the model is exchanged once per window,
// and only the part of the exchange that the computation of some iterations does not hide delays training.
//
//   - slices: one query per fragment. Its step is the part of a window that ends with the exchange: the fragment's
//     tensors become ready together, followed by the iterations that overlap the exchange.
//   - mean: the step, bytes and baselines of the whole plan are means per iteration of a window.
//   - whole: one list of rules for all fragments, which tithe.torch.LocalSteps takes as `choices`.
#include <span>
#include <string_view>
#include <vector>

#include "advisor/planner/planner.h"

namespace tithe::planner {

// The query of one fragment, the tensors `first` to `end` of `whole`.
struct Windows {
  // Iterations per window, fragments of the model, iterations of overlap.
  double every = 1, fragments = 1, delay = 0;
};
PlanQuery slice_of(const PlanQuery& whole, std::size_t first, std::size_t end, const Windows& windows);

struct WindowsPlan {
  Planned mean;  // its assignment is empty if one fragment's rules apply to all
  std::vector<Planned> slices;
};
// The slices cover `whole`, in order. `beside`: as in plan().
Result<WindowsPlan> plan_windows(const PlanQuery& whole, std::span<const PlanQuery> slices,
                                 const Windows& windows, std::string_view policy,
                                 const WindowsPlan* beside = nullptr);

}  // namespace tithe::planner
