// SPDX-License-Identifier: Apache-2.0
#pragma once
// A plan for many local steps (docs/guide/local_steps.md): a fragment of the model is exchanged once in a window, and
// what the computing of some iterations does not hide of that is waited for.
//
//   slices   a query for each fragment. Its step is the part of a window that ends with the exchange: the fragment's
//            tensors are ready together, and the iterations that the exchange runs behind follow
//   mean     a step of the whole is the mean iteration of a window, and so are its bytes and baselines
//   whole    one list of rules for all fragments: what tithe.torch.LocalSteps takes as `choices`
#include <span>
#include <string_view>
#include <vector>

#include "advice/planner/planner.h"

namespace tithe::planner {

// `whole` with the tensors of one fragment, `first` to `end`, of which there are `fragments`.
struct Windows {
  double every = 1, fragments = 1, delay = 0;  // iterations, parts of the model, iterations
};
PlanQuery slice_of(const PlanQuery& whole, std::size_t first, std::size_t end, const Windows& windows);

struct WindowsPlan {
  Planned mean;  // its assignment is empty where one fragment's rules serve all
  std::vector<Planned> slices;
};
// The slices are all of `whole`, in order. `beside`: as plan() has it.
Result<WindowsPlan> plan_windows(const PlanQuery& whole, std::span<const PlanQuery> slices,
                                 const Windows& windows, std::string_view policy,
                                 const WindowsPlan* beside = nullptr);

}  // namespace tithe::planner
