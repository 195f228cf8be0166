// SPDX-License-Identifier: Apache-2.0
#pragma once
// The planner's input: a training step of a model, a cluster with known costs, and the codecs that the user allows.
//
// No codec that loses more than bf16 is used without the user's permission (plan/allowance.h). The same query has the
// same answer on every machine: all arithmetic is fp64, and neither clocks nor random numbers are used.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "advisor/sim/world.h"
#include "plan/allowance.h"
#include "tithe/choices.h"

namespace tithe::planner {

using sim::Seconds;

struct JobTensor {
  std::string key;
  std::size_t n = 0;    // values
  std::size_t row = 0;  // values per row
  Seconds ready = 0;    // since the start of the step
};

// A training step, the same on all ranks.
struct Job {
  std::vector<JobTensor> tensors;  // in the order in which they become ready
  // Tensors up to this index are exchanged when the last of them is ready.
  std::vector<std::size_t> bucket_ends;
  Seconds compute = 0;  // forward and backward
  int lanes = 1;        // compute lanes of a rank; 0: derived from the cluster's cores
  // The last part of `compute`: the end of the round does not wait for it.
  Seconds behind = 0;
};

using tithe::Allowance, tithe::always_allowed, tithe::parse_allowance;

struct PlanQuery {
  Job job;
  sim::Cluster cluster;
  sim::Costs costs;
  std::vector<Allowance> allowed;

  int lanes() const { return cluster.lanes(0, job.lanes); }  // of rank 0
};

inline constexpr int kMaxPlanned = 4096;  // ranks; planning for this number takes some seconds

// kInvalid, with the cure, if no plan is possible: no tensors, more than kMaxPlanned ranks, an allowance that matches
// no tensor, or a codec with unknown costs.
Status check(const PlanQuery& query);

// The workload of the ranks under these rules, for the simulator.
Result<sim::Workload> workload_of(const PlanQuery& query, std::span<const Rule> rules);
// `limit` and `timelines` as in sim::run().
Result<sim::Outcome> simulate(const PlanQuery& query, std::span<const Rule> rules, bool events = false,
                              Seconds limit = sim::kNever, sim::TimelineCache* timelines = nullptr);

}  // namespace tithe::planner
