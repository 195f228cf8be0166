// SPDX-License-Identifier: Apache-2.0
#pragma once
// Part of world.h: the steps of the simulated ranks for one part, with their costs, and with each message's sender and
// receiver. Equal parts share one.
//
//   shared     between worlds too, if they are of the same cluster and costs: a search simulates many that are alike
//   matched    each send has the number of its receive, and each receive that of its send (graph.h, "matched"), so no
//              lookup is needed while the world runs
//   unverified programs do not record the maker of a frame: the simulator does not need it
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "advice/sim/classes.h"
#include "advice/sim/costs.h"
#include "engine/program/program.h"
#include "engine/program/template.h"

namespace tithe::sim {

struct MatchedStep {
  int rank = -1, step = -1;
};

struct Role {  // of one simulated rank
  engine::Program program;
  Priced price;
  std::vector<MatchedStep> match;  // by step: of a send, its receive; of a receive, its send
};

struct StepTimeline {
  std::vector<Role> roles;  // by simulated rank
};

// Writes them, and remembers what strategies draw.
class TimelineBuilder {
 public:
  // `servers`: as in Workload.
  TimelineBuilder(const Cluster& cluster, const Costs& costs, const Classes& classes, int servers)
      : cluster_(cluster),
        costs_(costs),
        classes_(classes),
        servers_(servers),
        templates_(static_cast<std::size_t>(classes.simulated())) {}

  // Draws a strategy for all simulated ranks, once. kInvalid: they have more steps than memory can hold.
  Status draw(const Strategy& strategy);
  // kInvalid: a codec whose costs nobody knows. The part has passed choose_laws, its strategy is drawn.
  Result<std::shared_ptr<const StepTimeline>> of(const Part& part, bool copies);
  // Drops cached timelines; the drawn strategies stay.
  void forget() { known_.clear(); }
  std::size_t nodes() const { return nodes_; }  // of all that was ever drawn and written
  // By part of a bucket, whose strategies are drawn: all parts up to this one are over before it begins
  // (engine/program/window.h).
  std::vector<int> begins_after(const Plan& plan, bool copies);

 private:
  struct Drawn {
    std::deque<Graph> graphs;  // by simulated rank
    bool any_merge = false;
    StrategyCost cost{};
  };
  Status foresee(const Strategy& strategy) const;
  Place place(Rank me) const { return {me, cluster_.world(), &cluster_.shared(), servers_}; }
  const Drawn& drawn(const Strategy& strategy) const { return drawn_.at(&strategy); }
  void match(StepTimeline& timeline, const Strategy& strategy) const;
  std::vector<std::vector<int>> payloads(const StepTimeline& timeline) const;

  const Cluster& cluster_;
  const Costs& costs_;
  const Classes& classes_;
  const int servers_;
  std::vector<engine::Templates> templates_;  // by simulated rank
  std::map<const Strategy*, Drawn> drawn_;
  std::map<std::string, std::shared_ptr<const StepTimeline>> known_;
  std::size_t nodes_ = 0;
};

// TimelineBuilders for worlds of one cluster with the same costs, which are simulated one after the other.
class TimelineCache {
 public:
  struct Entry {
    Entry(const Cluster& cluster, const Costs& costs, Classes of, int servers)
        : classes(std::move(of)), timelines(cluster, costs, classes, servers) {}
    const Classes classes;
    TimelineBuilder timelines;
  };
  // Returns what worlds share whose parts go by these strategies; it holds until the next call. `all`: every rank is
  // simulated; else those alone that stand for all.
  Entry& of(const Cluster& cluster, const Costs& costs, std::set<const Strategy*> strategies, int servers,
            bool all);

 private:
  std::map<std::tuple<std::set<const Strategy*>, int, bool>, std::unique_ptr<Entry>> entries_;
};

}  // namespace tithe::sim
