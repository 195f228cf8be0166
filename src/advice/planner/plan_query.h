// SPDX-License-Identifier: Apache-2.0
#pragma once
// The planner's input: a training step of a model, a cluster with known costs, and the codecs that the user
// allows.
//
//   allowed   nothing that loses more than bf16 without a word of the user (plan/allowance.h)
//   same      the same query has the same answer on every machine: fp64, no clock, nothing random
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "advice/sim/world.h"
#include "plan/allowance.h"
#include "tithe/choices.h"

namespace tithe::planner {

using sim::Seconds;

struct JobTensor {
  std::string key;
  std::size_t n = 0;    // values
  std::size_t row = 0;  // values per row
  Seconds ready = 0;    // since the step began
};

// A step of training, the same on all ranks.
struct Job {
  std::vector<JobTensor> tensors;        // in the order in which they become ready
  std::vector<std::size_t> bucket_ends;  // tensors up to this one are handed over with the last of them
  Seconds compute = 0;                   // forward and backward
  int lanes = 1;                         // compute lanes of a rank; 0: as the cluster's cores have it
  Seconds behind = 0;  // the last of `compute`: ranks' word that the round is over does not wait for it
};

using tithe::Allowance, tithe::always_allowed, tithe::parse_allowance;

struct PlanQuery {
  Job job;
  sim::Cluster cluster;
  sim::Costs costs;
  std::vector<Allowance> allowed;

  int lanes() const { return cluster.lanes(0, job.lanes); }  // of rank 0
};

inline constexpr int kMostPlanned = 4096;  // ranks: some seconds

// kInvalid, with the cure, for what no plan can answer: no tensors, more ranks than that, an allowance that takes no
// tensor, a codec whose costs nobody knows.
Status check(const PlanQuery& query);

// The codecs that a tensor may have: fp32, bf16, zip, then the others in the order in which they are allowed.
std::vector<Spec> codecs_for(const PlanQuery& query, std::string_view key);

// The ranks' work under these rules: the step that the simulator runs.
Result<sim::Workload> workload_of(const PlanQuery& query, std::span<const Rule> rules);
// `limit`, `timelines`: as sim::run has them.
Result<sim::Outcome> simulate(const PlanQuery& query, std::span<const Rule> rules, bool events = false,
                              Seconds limit = sim::kNever, sim::TimelineCache* timelines = nullptr);

}  // namespace tithe::planner
