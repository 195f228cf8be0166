// SPDX-License-Identifier: Apache-2.0
// Plans each fragment by itself and averages the results over the iterations of a window.
#include "advisor/planner/windows.h"

#include <algorithm>

namespace tithe::planner {
namespace {

// Adds one slice's baseline. The name lists the distinct names of the slices: "fp32@ring and fp32@server".
void add(Baseline& to, const Baseline& one, double every) {
  to.step += one.step / every;
  to.on_devices = to.on_devices || one.on_devices;
  if (to.name.empty())
    to.name = one.name, to.rules = one.rules;
  else if (to.name.find(one.name) == std::string::npos)
    to.name += " and " + one.name;
}

// Appends the decisions of a slice, with option indices converted from plan search `of` to `on`.
void append(Assignment& to, const Assignment& from, const PlanSearch& of, const PlanSearch& on) {
  for (Decision d : from) {
    const Option& option = of.option(d.option);
    d.option = on.find(option.spec, option.strategy->name);
    to.push_back(d);
  }
}

// Adds one slice's outcome to the mean iteration.
void add(sim::Outcome& to, const sim::Outcome& one, double every) {
  to.bytes.resize(1);
  to.step += one.step / every;
  to.exposed += one.exposed / every;
  to.bytes[0] += one.bytes[0] / every;
}

// Uses one fragment's rules for all fragments if the step takes as long. The result has rules by size instead of
// rules by key.
Status simplify(Planned& mean, std::span<const PlanQuery> slices, std::span<const Planned> plans,
                double every) {
  constexpr double kAsLong = 1.002;
  constexpr std::size_t kTried = 4;
  const Seconds most = kAsLong * mean.outcome.step;
  for (const Planned& of : plans.first(std::min(kTried, plans.size()))) {
    if (of.rules.size() >= mean.rules.size()) continue;
    sim::Outcome all;
    for (const PlanQuery& slice : slices) {
      const Result<sim::Outcome> one = simulate(slice, of.rules);
      if (!one.ok()) return one.status();
      add(all, *one, every);
    }
    if (all.step > most) continue;
    mean.rules = of.rules;
    mean.outcome = std::move(all);
    mean.assignment.clear();
  }
  return {};
}

// A session that has seen only some fragments refuses a rule for an unknown key, but accepts a pattern without a match.
// So each key becomes a pattern: the key with a '*' or, if other keys begin with it, with '?' as its last character.
void as_patterns(std::vector<Rule>& rules, const std::vector<JobTensor>& tensors) {
  for (Rule& rule : rules) {
    if (rule.match.find_first_of("*?") != std::string::npos) continue;
    const auto begins = [&](const JobTensor& t) { return t.key.starts_with(rule.match); };
    if (std::ranges::count_if(tensors, begins) == 1)
      rule.match += '*';
    else
      rule.match.back() = '?';
  }
}

}  // namespace

PlanQuery slice_of(const PlanQuery& whole, std::size_t first, std::size_t end, const Windows& windows) {
  PlanQuery slice{{}, whole.cluster, whole.costs, {}};
  const Seconds iteration = whole.job.compute;
  slice.job.compute = windows.every / windows.fragments * iteration;
  slice.job.behind = windows.delay * iteration;
  slice.job.lanes = whole.job.lanes;
  for (std::size_t t = first; t < end; ++t) {
    slice.job.tensors.push_back(whole.job.tensors[t]);
    slice.job.tensors.back().ready = slice.job.compute - slice.job.behind;
  }
  for (const std::size_t bucket : whole.job.bucket_ends)
    if (bucket > first && bucket < end) slice.job.bucket_ends.push_back(bucket - first);
  slice.job.bucket_ends.push_back(end - first);
  for (const Allowance& a : whole.allowed)
    if (a.match.empty() ||
        std::ranges::any_of(slice.job.tensors, [&](const JobTensor& t) { return matches(a.match, t.key); }))
      slice.allowed.push_back(a);
  return slice;
}

Result<WindowsPlan> plan_windows(const PlanQuery& whole, std::span<const PlanQuery> slices,
                                 const Windows& windows, std::string_view policy, const WindowsPlan* beside) {
  Result<PlanSearch> search = PlanSearch::make(whole);
  if (!search.ok()) return search.status();
  WindowsPlan out;
  Planned& mean = out.mean;
  mean.policy = std::string(policy);
  bool compressed = false;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    Result<Planned> made = plan(slices[s], policy, beside == nullptr ? nullptr : &beside->slices[s]);
    if (!made.ok()) return made.status();
    const Planned& one = out.slices.emplace_back(std::move(*made));
    const Result<PlanSearch> own = PlanSearch::make(slices[s]);
    if (!own.ok()) return own.status();
    append(mean.assignment, one.assignment, *own, *search);
    add(mean.outcome, one.outcome, windows.every);
    add(mean.fp32, one.fp32, windows.every);
    add(mean.bf16, one.bf16, windows.every);
    add(mean.single, one.single, windows.every);
    mean.lossless += one.lossless / windows.every;
    const bool found = one.compressed > 0 && one.compressed < sim::kNever;
    compressed = compressed || found;
    mean.compressed += (found ? one.compressed : one.outcome.step) / windows.every;
    mean.compresses = mean.compresses || one.compresses;
    mean.simulated += one.simulated;
    mean.judged += one.judged;
    mean.estimated = mean.estimated || one.estimated;
  }
  if (!compressed) mean.compressed = 0;
  mean.rules = search->rules(mean.assignment);
  const bool excepted =
      std::ranges::any_of(whole.allowed, [](const Allowance& a) { return !a.match.empty(); });
  if (slices.size() > 1 && !excepted && !mean.estimated)
    TITHE_TRY(simplify(mean, slices, out.slices, windows.every));
  if (slices.size() > 1) as_patterns(mean.rules, whole.job.tensors);
  mean.verdict = verdict_of(mean, whole, policy);
  return out;
}

}  // namespace tithe::planner
