// SPDX-License-Identifier: Apache-2.0
// Reasons for a plan, by simulating variants of the cluster and of the plan.
#include "advisor/planner/why.h"

#include <algorithm>

#include "advisor/planner/tensor_class.h"

namespace tithe::planner {
namespace {

constexpr std::size_t kMaxRows = 10, kMaxEach = 4;
constexpr std::size_t kWorthSteps = 3'000'000;  // program steps in all alternatives
// Times the plan's step: how much longer an alternative takes beyond this does not matter.
constexpr double kFar = 2;

std::string name_of(const PlanSearch& search, const Decision& d) {
  if (d.grouped) return tithe::to_string(search.option(d.option).spec) + " in a group";
  return to_string(search.option(d.option)) + (d.rounded_inside ? ", bf16 inside" : "");
}

}  // namespace

// Simulates the plan with twice the bandwidth, half the latency and twice the cores. The resource whose change helps
// most is the bottleneck.
Result<Bounds> bounds_of(const PlanQuery& query, const Planned& planned) {
  Bounds out;
  out.step = planned.outcome.step;
  out.no_communication = query.job.compute;
  const auto with = [&](const sim::Cluster& cluster) -> Result<Seconds> {
    PlanQuery other = query;
    other.cluster = cluster;
    if (!planned.estimated) {
      const Result<sim::Outcome> o = simulate(other, planned.rules);
      return o.ok() ? Result<Seconds>(o->step) : o.status();
    }
    Result<PlanSearch> search = PlanSearch::make(other);
    if (!search.ok()) return search.status();
    return search->judge(planned.assignment);
  };
  struct Help {
    Seconds* step;
    std::string name;
    sim::Cluster cluster;
  };
  const std::string& busiest = planned.outcome.busiest;
  const std::string link = busiest.ends_with("down") ? "downlink" : "uplink";
  const Help helps[] = {{&out.twice_bandwidth, link, query.cluster.with_rate(2 * query.cluster.rates()[0])},
                        {&out.half_latency, "latency", query.cluster.with_latency(0.5)},
                        {&out.twice_cores, "the lanes", query.cluster.with_cores(2)}};
  constexpr double kHelps = 0.97, kHidden = 0.01, kMuch = 0.5;
  const bool inside = busiest.ends_with("inside") && planned.outcome.max_link_busy > kMuch * out.step;
  out.by = inside ? "links inside hosts" : "the engine";
  Seconds least = kHelps * out.step;
  for (const Help& h : helps) {
    const Result<Seconds> step = with(h.cluster);
    if (!step.ok()) return step.status();
    *h.step = *step;
    if (*step >= least) continue;
    least = *step;
    out.by = h.name;
  }
  if (planned.outcome.exposed <= kHidden * out.step) out.by = "compute";
  return out;
}

Result<Reasons> reasons_of(const PlanQuery& query, const Planned& planned) {
  Result<PlanSearch> search = PlanSearch::make(query);
  if (!search.ok()) return search.status();
  Reasons out;
  const std::vector<TensorClass> rows = tensor_classes(*search, planned.assignment);
  const std::size_t most = std::clamp<std::size_t>(
      kWorthSteps / std::max<std::size_t>(1, planned.outcome.steps), kMaxEach, kMaxRows * kMaxEach);
  const std::size_t examined = std::min({rows.size(), kMaxRows, std::max<std::size_t>(1, most / 2)});
  const std::size_t each = std::clamp<std::size_t>(most / examined, 2, kMaxEach);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (r >= examined) {
      out.left_out += rows[r].size();
      continue;
    }
    const std::size_t first = rows[r][0];
    Reason row{rows[r], name_of(*search, planned.assignment[first]), {}};
    std::vector<Assignment> others = alternatives(*search, planned.assignment, rows[r]);
    others.resize(std::min(others.size(), each));
    for (Assignment& other : others) {
      const Result<sim::Outcome> step = step_of(*search, other, kFar * planned.outcome.step);
      if (!step.ok()) return step.status();
      row.alternatives.push_back({name_of(*search, other[first]), std::move(other), step->step});
    }
    std::ranges::stable_sort(row.alternatives, {}, &Alternative::step);
    out.rows.push_back(std::move(row));
  }
  return out;
}

}  // namespace tithe::planner
