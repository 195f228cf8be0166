// SPDX-License-Identifier: Apache-2.0
// Groups tensors by decision, size class and allowed options.
#include "advisor/planner/tensor_class.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace tithe::planner {

std::vector<TensorClass> tensor_classes(const PlanSearch& search, const Assignment& plan) {
  const std::vector<JobTensor>& tensors = search.query().job.tensors;
  using Key = std::tuple<Decision, int, std::vector<bool>>;
  std::map<Key, TensorClass> rows;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const int size = plan[t].grouped ? 0 : static_cast<int>(std::bit_width(tensors[t].n)) / 2;
    std::vector<bool> may;
    for (std::size_t o = 0; o < search.options().size(); ++o)
      may.push_back(search.allowed(t, static_cast<int>(o)));
    rows[{plan[t], size, std::move(may)}].push_back(t);
  }
  const auto values = [&](const TensorClass& row) {
    std::size_t sum = 0;
    for (const std::size_t t : row) sum += tensors[t].n;
    return sum;
  };
  std::vector<TensorClass> out;
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  std::stable_sort(out.begin(), out.end(),
                   [&](const TensorClass& a, const TensorClass& b) { return values(a) > values(b); });
  return out;
}

// One alternative per searched option, each with its best part size by estimate, and groups for small tensors.
std::vector<Assignment> alternatives(PlanSearch& search, const Assignment& plan, const TensorClass& tensors) {
  struct Estimate {
    Seconds step = sim::kNever;
    bool lossy = false;
    Assignment assignment;
  };
  std::vector<Estimate> guesses;
  const Decision now = plan[tensors[0]];
  const auto guess = [&](const Decision& to) {
    Estimate g{sim::kNever, search.option(to.option).lossy, plan};
    for (const std::size_t t : tensors) g.assignment[t] = to;
    g.step = search.judge(g.assignment);
    return g;
  };
  for (std::size_t o = 0; o < search.options().size(); ++o) {
    const int option = static_cast<int>(o);
    if (!search.options()[o].searched || !search.allowed(tensors[0], option)) continue;
    if (!now.grouped && now.option == option) continue;
    Estimate best;
    for (const std::size_t part : {kDefaultPartValues, std::size_t{1} << 20, std::size_t{1} << 18}) {
      Estimate g = guess({option, part, false, now.rounded_inside, now.early});
      if (g.step < best.step) best = std::move(g);
    }
    if (!best.assignment.empty()) guesses.push_back(std::move(best));
  }
  constexpr std::size_t kSmall = std::size_t{1} << 16;
  if (!now.grouped &&
      std::ranges::all_of(tensors, [&](std::size_t t) { return search.query().job.tensors[t].n < kSmall; }))
    guesses.push_back(guess(search.grouped(tensors[0])));
  std::ranges::stable_sort(guesses, {}, &Estimate::step);
  const bool is = search.option(now.option).lossy;
  const auto other = std::ranges::find_if(guesses, [&](const Estimate& g) { return g.lossy != is; });
  if (other != guesses.end() && other - guesses.begin() > 1)
    std::rotate(guesses.begin() + 1, other, other + 1);
  std::vector<Assignment> out;
  for (Estimate& g : guesses) out.push_back(std::move(g.assignment));
  return out;
}

}  // namespace tithe::planner
