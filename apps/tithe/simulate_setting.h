// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `tithe simulate` runs: a model on a cluster, under one setting of the session.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/model_list.h"
#include "sim/profile.h"
#include "sim/world.h"
#include "tithe/session.h"

namespace tithe::cli {

struct SimulateArgs {
  std::string model, cluster, link, profile, choices_file, sweep, trace, html;
  std::vector<std::string> compare;
  SessionOptions session;
  int ranks = 0;  // 0: those of the cluster
  double bucket_cap_mb = 25;
  bool foreign_profile = false;
};

// What the options name, read and checked once.
struct Scene {
  bench::ModelList model;
  sim::Cluster cluster;
  sim::Costs costs;
  std::string source;     // of the costs, in words
  bool measured = false;  // they are a profile's
};
Result<Scene> scene_of(const SimulateArgs& args);

// One setting: "onebit", "dgc:ratio=0.01@gather"; or the options' own.
struct Setting {
  std::string label;
  SessionOptions session;
};
Result<std::vector<Setting>> settings_of(const SimulateArgs& args);

// The step that a model makes of a setting, bucket by bucket as DistributedDataParallel fills them.
Result<sim::Workload> workload_of(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                  double bucket_cap_mb);

struct Answer {
  Setting setting;
  int world = 0;
  double rate = 0;     // bytes per second of the first host's link
  double compute = 0;  // seconds
  sim::Outcome outcome;
  double efficiency() const { return outcome.step > 0 ? compute / outcome.step : 1; }
};
Result<Answer> simulate_one(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                            const SimulateArgs& args, bool events);

// The trace of rank 0's step in Chrome's format.
std::string chrome_trace(const Answer& answer);

// One page with a curve per setting, that needs nothing else: x is what was swept.
std::string sweep_html(const std::string& title, const std::string& x, const std::vector<double>& at,
                       const std::vector<std::vector<Answer>>& answers);

}  // namespace tithe::cli
