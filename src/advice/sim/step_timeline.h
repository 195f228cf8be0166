// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inside world.h: what the ranks that are simulated do for a part, with what it costs and who meets whom. Parts
// that are equal share one.
//
//   shared     between worlds too, if they are of the same cluster and costs: a search simulates many that are alike
//   matched    a send and the receive that it meets know each other (graph.h, "matched"): nothing is looked up
//              while the world runs
//   unverified programs say nothing of who made a frame: nobody checks that here, and it needs the graphs of all ranks
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

struct Met {
  int seat = -1, step = -1;
};

struct Role {  // of one seat
  engine::Program program;
  Priced price;
  std::vector<Met> met;  // by step: of a send, the receive that it meets; of a receive, the send
};

struct Script {
  std::vector<Role> roles;  // by seat
};

// Writes them, and remembers what strategies draw.
class Scripts {
 public:
  // `servers`: as in Workload.
  Scripts(const Cluster& cluster, const Costs& costs, const Classes& classes, int servers)
      : cluster_(cluster),
        costs_(costs),
        classes_(classes),
        servers_(servers),
        templates_(static_cast<std::size_t>(classes.seats())) {}

  // Draws a strategy for all ranks that are simulated, once. kInvalid: they have more steps than memory can hold.
  Status draw(const Strategy& strategy);
  // kInvalid: a codec whose costs nobody knows. The part has passed choose_laws, its strategy is drawn.
  Result<std::shared_ptr<const Script>> of(const Part& part, bool copies);
  // Drops the scripts that nobody holds; what strategies draw stays.
  void forget() { known_.clear(); }
  std::size_t nodes() const { return nodes_; }  // of all that was ever drawn and written
  // By part of a bucket, whose strategies are drawn: all parts up to this one are over before it begins
  // (engine/program/window.h).
  std::vector<int> begins_after(const Plan& plan, bool copies);

 private:
  struct Drawn {
    std::deque<Graph> graphs;  // by seat
    bool any_merge = false;
    StrategyCost cost{};
  };
  Status foresee(const Strategy& strategy) const;
  Place place(Rank me) const { return {me, cluster_.world(), &cluster_.shared(), servers_}; }
  const Drawn& drawn(const Strategy& strategy) const { return drawn_.at(&strategy); }
  void match(Script& script, const Strategy& strategy) const;
  std::vector<std::vector<int>> payloads(const Script& script) const;

  const Cluster& cluster_;
  const Costs& costs_;
  const Classes& classes_;
  const int servers_;
  std::vector<engine::Templates> templates_;  // by seat
  std::map<const Strategy*, Drawn> drawn_;
  std::map<std::string, std::shared_ptr<const Script>> known_;
  std::size_t nodes_ = 0;
};

// Writers of scripts for worlds of one cluster at the same costs, which are simulated one after the other.
class Library {
 public:
  struct Shelf {
    Shelf(const Cluster& cluster, const Costs& costs, Classes of, int servers)
        : classes(std::move(of)), scripts(cluster, costs, classes, servers) {}
    const Classes classes;
    Scripts scripts;
  };
  // Returns what worlds share whose parts go by these strategies; it holds until the next call. `all`: every rank is
  // simulated; else those alone that stand for all.
  Shelf& of(const Cluster& cluster, const Costs& costs, std::set<const Strategy*> strategies, int servers,
            bool all);

 private:
  std::map<std::tuple<std::set<const Strategy*>, int, bool>, std::unique_ptr<Shelf>> shelves_;
};

}  // namespace tithe::sim
