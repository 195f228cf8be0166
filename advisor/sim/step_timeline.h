// SPDX-License-Identifier: Apache-2.0
#pragma once
// Part of world.h: the programs of the simulated ranks for one part, with costs, and with the matching sends and
// receives. Equal parts share one.
//
//   - shared: worlds with the same cluster and costs share timelines, since a search simulates many similar worlds.
//   - matched: each send has its receive and each receive its send (graph.h, "matched"), so the running world needs no
//     lookup.
//   - unverified: these programs do not record the maker of a frame, which the simulator does not need.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "advisor/sim/classes.h"
#include "advisor/sim/costs.h"
#include "engine/program/program.h"
#include "engine/program/template.h"

namespace tithe::sim {

struct MatchedStep {
  int rank = -1, step = -1;
};

// The program of one simulated rank.
struct Role {
  engine::Program program;
  Priced price;
  std::vector<MatchedStep> match;  // by step: a send's receive, a receive's send
};

struct StepTimeline {
  std::vector<Role> roles;  // by simulated rank
};

// Visits each step of all simulated ranks, after the steps that it depends on: steps of its rank, and for a receive the
// matching send.
void for_each_in_order(const StepTimeline& timeline, const std::function<void(MatchedStep)>& visit);

// Builds timelines, and caches the graphs of strategies.
class TimelineBuilder {
 public:
  // `servers` as in Workload.
  TimelineBuilder(const Cluster& cluster, const Costs& costs, const Classes& classes, int servers)
      : cluster_(cluster),
        costs_(costs),
        classes_(classes),
        servers_(servers),
        templates_(static_cast<std::size_t>(classes.simulated())) {}

  // Draws a strategy for all simulated ranks, once. kInvalid: their steps would not fit into memory.
  Status draw(const Strategy& strategy);
  // kInvalid: a codec with unknown costs. The part must have passed choose_laws, and its strategy must be drawn.
  Result<std::shared_ptr<const StepTimeline>> of(const Part& part, bool copies);
  // Drops the cached timelines; the drawn strategies stay.
  void forget() { known_.clear(); }
  std::size_t nodes() const { return nodes_; }  // of all graphs and programs built so far
  // By part of a bucket: all parts up to this index must end before it begins (engine/program/window.h). The parts'
  // strategies must be drawn.
  std::vector<int> begins_after(const Plan& plan, bool copies);

 private:
  struct StrategyGraphs {
    std::deque<Graph> graphs;  // by simulated rank
    bool any_merge = false;
    StrategyCost cost{};
  };
  Status foresee(const Strategy& strategy) const;
  Place place(Rank me) const { return {me, cluster_.world(), &cluster_.shared(), servers_}; }
  const StrategyGraphs& drawn(const Strategy& strategy) const { return drawn_.at(&strategy); }
  void match(StepTimeline& timeline, const Strategy& strategy) const;
  std::vector<std::vector<int>> payloads(const StepTimeline& timeline) const;

  const Cluster& cluster_;
  const Costs& costs_;
  const Classes& classes_;
  const int servers_;
  std::vector<engine::Templates> templates_;  // by simulated rank
  std::map<const Strategy*, StrategyGraphs> drawn_;
  std::map<std::string, std::shared_ptr<const StepTimeline>> known_;
  std::size_t nodes_ = 0;
};

// TimelineBuilders for consecutive worlds of one cluster with the same costs.
class TimelineCache {
 public:
  struct Entry {
    Entry(const Cluster& cluster, const Costs& costs, Classes of, int servers)
        : classes(std::move(of)), timelines(cluster, costs, classes, servers) {}
    const Classes classes;
    TimelineBuilder timelines;
  };
  // The shared entry of worlds whose parts use these strategies; valid until the next call. `all`: every rank is
  // simulated; else only the ranks that represent all.
  Entry& of(const Cluster& cluster, const Costs& costs, std::set<const Strategy*> strategies, int servers,
            bool all);

 private:
  std::map<std::tuple<std::set<const Strategy*>, int, bool>, std::unique_ptr<Entry>> entries_;
};

}  // namespace tithe::sim
