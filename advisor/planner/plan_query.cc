// SPDX-License-Identifier: Apache-2.0
// Validates queries, and turns rules into a workload for the simulator.
#include "advisor/planner/plan_query.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/peers/session_config.h"

namespace tithe::planner {

Status check(const PlanQuery& query) {
  const Job& job = query.job;
  if (job.tensors.empty())
    return Status(Code::kInvalid, "the model has no tensors: there is nothing to plan");
  const int world = query.cluster.world();
  if (world < 1) return Status(Code::kInvalid, "the cluster has no ranks");
  if (world > kMaxPlanned)
    return Status(
        Code::kInvalid,
        fmt::format("{} ranks: the planner supports at most {}, because a search simulates many steps; plan "
                    "for fewer (--ranks), then pass the plan to tithe simulate --choices with all ranks",
                    world, kMaxPlanned));
  std::vector<Spec> needed{uncompressed_spec(), half_spec()};
  for (const Allowance& a : query.allowed) needed.push_back(a.codec);
  TITHE_TRY(query.costs.know(needed));
  for (const Allowance& a : query.allowed) {
    if (a.match.empty()) continue;
    const bool met = std::any_of(job.tensors.begin(), job.tensors.end(),
                                 [&](const JobTensor& t) { return matches(a.match, t.key); });
    if (!met)
      return Status(
          Code::kInvalid,
          fmt::format("allowed '{}: {}': no tensor of the model has such a key; the first key is '{}'",
                      a.match, to_string(a.codec), job.tensors[0].key));
  }
  return {};
}

Result<sim::Workload> workload_of(const PlanQuery& query, std::span<const Rule> rules) {
  SessionOptions options;
  options.codec = "fp32";
  options.rules = std::vector<Rule>(rules.begin(), rules.end());
  options.link = query.cluster.link_text(query.costs);
  const Result<Choices> choices = engine::choices_of(options, query.cluster.world(), query.cluster.shared());
  if (!choices.ok()) return choices.status();
  sim::Workload work;
  work.compute = query.job.compute - query.job.behind;
  work.lanes = query.job.lanes;
  std::size_t first = 0;
  for (const std::size_t end : query.job.bucket_ends) {
    std::vector<PlanTensor> bucket;
    for (std::size_t t = first; t < end; ++t) {
      const JobTensor& tensor = query.job.tensors[t];
      bucket.push_back({tensor.key, tensor.n, tensor.row});
    }
    work.buckets.push_back({query.job.tensors[end - 1].ready, make_plan(bucket, *choices)});
    first = end;
  }
  return work;
}

Result<sim::Outcome> simulate(const PlanQuery& query, std::span<const Rule> rules, bool events, Seconds limit,
                              sim::TimelineCache* timelines) {
  const Result<sim::Workload> work = workload_of(query, rules);
  if (!work.ok()) return work.status();
  Result<sim::Outcome> out =
      sim::run(query.cluster, query.costs, *work, events, sim::Extent::kNeeded, limit, timelines);
  if (out.ok() && query.job.behind > 0 && out->step < sim::kNever) {
    out->step = std::max(out->step, query.job.compute);
    out->exposed = out->step - query.job.compute;
  }
  return out;
}

}  // namespace tithe::planner
