// SPDX-License-Identifier: Apache-2.0
#pragma once
// A run of `tithe simulate`: a model on a cluster, under one setting of the session.
#include <string>
#include <vector>

#include "advisor/measure/model_list.h"
#include "advisor/sim/profile.h"
#include "advisor/sim/world.h"
#include "tithe/session.h"

namespace tithe::cli {

struct SimulateArgs {
  std::string model, cluster, link, hosts, set_link, transport, profile, choices_file, sweep, trace, html;
  std::vector<std::string> compare;
  SessionOptions session;
  int ranks = 0;  // 0: as in the cluster
  // Local steps (simulate_windows.h). every = 0: each step is synchronised.
  int every = 0, fragments = 1, delay = 0;
  // Fully sharded training (simulate_sharded.h). Empty: all-reduces.
  std::string sharded, weights = "delta";
  int forward_prefetch = 0;
  double bucket_cap_mb = 25;
  bool foreign_profile = false;
};

// The model, cluster and costs that the options name.
struct Scene {
  bench::ModelList model;
  sim::Cluster cluster;
  sim::Costs costs;
  std::string source;     // description of the costs' origin
  bool measured = false;  // from a profile
};
Result<Scene> scene_of(const SimulateArgs& args);
// Two lines: the model on the cluster, and the source of the costs.
std::string scene_text(const Scene& scene, const sim::Cluster& cluster);

// One setting: "onebit", "dgc:ratio=0.01@gather"; or that of the options.
struct Setting {
  std::string label;
  SessionOptions session;
  std::string weights = {};  // with --sharded: the codec of all-gathers
};
Result<std::vector<Setting>> settings_of(const SimulateArgs& args);

// The speed of the cluster's devices relative to the model's file; the cluster may state the model's step.
double speed_of(const Scene& scene, const sim::Cluster& cluster);

// The choices of sessions under a setting. Their link option is `set_link`; empty: the cluster's link; "none": no
// link.
Result<Choices> choices_of(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                           const std::string& set_link);
// The workload of a step under a setting, with buckets as DistributedDataParallel fills them.
Result<sim::Workload> workload_of(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                  double bucket_cap_mb, const std::string& set_link);

struct Answer {
  Setting setting;
  int world = 0;
  double rate = 0;     // bytes per second of the first host's link
  double compute = 0;  // seconds
  sim::Outcome outcome;
  std::vector<Spec> specs = {};  // of its parts, without duplicates
  double exchange = 0;           // local steps: seconds of the longest exchange
  // Fully sharded training: bytes that rank 0 sends in reduce-scatters and in all-gathers.
  double gradient_bytes = 0, weight_bytes = 0;
  double efficiency() const { return outcome.step > 0 ? compute / outcome.step : 1; }
};
Result<Answer> simulate_one(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                            const SimulateArgs& args, bool events);

// The codecs among these whose payload size depends on the gradients and was not measured; the sizes of codec/typical.h
// are used for them.
std::vector<std::string> assumed_sizes(const Scene& scene, std::span<const Answer> answers);

// The range in milliseconds that contains 8 of 10 such steps (lab/results/truth.md).
std::pair<double, double> band_ms(const Answer& answer);

// The trace of rank 0's step in Chrome's format.
std::string chrome_trace(const Answer& answer);

// Results of all settings for each value of a swept quantity.
struct Sweep {
  std::string unit;
  std::vector<double> at;
  std::vector<std::vector<Answer>> answers;
};

// Self-contained HTML pages (simulate_figure.cc). A sweep's page has one curve per setting; a comparison's page has
// bars with the time of each setting.
std::string sweep_page(const std::string& title, const std::string& about, const Sweep& sweep);
std::string compare_page(const std::string& title, const std::string& about,
                         const std::vector<Answer>& answers);

}  // namespace tithe::cli
