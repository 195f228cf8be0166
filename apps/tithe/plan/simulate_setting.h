// SPDX-License-Identifier: Apache-2.0
#pragma once
// A run of `tithe simulate`: a model on a cluster, under one setting of the session.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "advice/sim/profile.h"
#include "advice/sim/world.h"
#include "figure.h"
#include "measure/model_list.h"
#include "tithe/session.h"

namespace tithe::cli {

struct SimulateArgs {
  std::string model, cluster, link, hosts, tell_link, transport, profile, choices_file, sweep, trace, html,
      png;
  std::vector<std::string> compare;
  SessionOptions session;
  int ranks = 0;  // 0: those of the cluster
  int every = 0, fragments = 1,
      delay = 0;  // of local steps (simulate_windows.h); 0: every step is synchronised
  double bucket_cap_mb = 25;
  bool foreign_profile = false;
};

// The model, cluster and costs that the options name, read and checked once.
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

// How many times as fast as its file says the cluster's devices compute the model: the cluster may know its step.
double speed_of(const Scene& scene, const sim::Cluster& cluster);

// The step that a model makes of a setting, bucket by bucket as DistributedDataParallel fills them. Its sessions are
// told `tell_link` as their link; empty: the cluster's; "none": nothing.
Result<sim::Workload> workload_of(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                  double bucket_cap_mb, const std::string& tell_link);

struct Answer {
  Setting setting;
  int world = 0;
  double rate = 0;     // bytes per second of the first host's link
  double compute = 0;  // seconds
  sim::Outcome outcome;
  std::vector<Spec> specs = {};  // of its parts, each once
  double exchange = 0;           // of local steps: seconds that the longest exchange takes
  double efficiency() const { return outcome.step > 0 ? compute / outcome.step : 1; }
};
Result<Answer> simulate_one(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                            const SimulateArgs& args, bool events);

// Codecs among these whose payloads depend on the gradients, and whose sizes nobody measured: those of codec/typical.h
// stand for them.
std::vector<std::string> assumed_sizes(const Scene& scene, std::span<const Answer> answers);

// Milliseconds between which 8 of 10 such steps are to be expected (bench/results/truth.md).
std::pair<double, double> band_ms(const Answer& answer);

// The trace of rank 0's step in Chrome's format.
std::string chrome_trace(const Answer& answer);

// Settings over something: a row of answers for each point.
struct Sweep {
  std::string unit;
  std::vector<double> at;
  std::vector<std::vector<Answer>> answers;
};

// simulate_figure.cc: a curve per setting, over what was swept; or where the time of each setting goes. Pages need
// nothing else.
Figure sweep_figure(const Sweep& sweep);
Figure compare_figure(const std::vector<Answer>& answers);
std::string sweep_page(const std::string& title, const std::string& about, const Sweep& sweep);
std::string compare_page(const std::string& title, const std::string& about,
                         const std::vector<Answer>& answers);

}  // namespace tithe::cli
