// SPDX-License-Identifier: Apache-2.0
#pragma once
// A part's costs to a rank, as stages: computing, then what goes up its link, then what comes down, and again. Taken
// from the engine's own program of that part (engine/program/program.h), so a strategy needs no formula here.
//
//   stage     hop h of a message is one more than the most hops of what it was made from; stage h holds the computing
//             that needs h hops, the frames that leave after it, and those that come in at hop h
//   typical   of the rank whose work is most, where ranks differ
//   inside    what ranks of one host send each other takes its time on the link that all of them share
//   shared    a host's link is shared by those of its ranks that send to other hosts
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "advice/planner/plan_query.h"

namespace tithe::planner {

struct CostStage {
  Seconds compute = 0;
  Seconds up = 0, down = 0;  // on the link, before and after
  Seconds delay = 0;         // until what went up begins to come down
  Seconds inside = 0;        // on the link inside the host
};
struct PartCost {
  std::vector<CostStage> stages;
  Seconds link = 0;    // for which the busiest link has to be busy, whoever sends when
  CostStage all = {};  // of the stages together
};

// An option for the exchange of a part: codec and strategy.
struct Option {
  Spec spec;
  const Strategy* strategy = nullptr;
  bool lossy = false;      // the user had to allow it
  bool searched = true;    // else it is there to compare with, for all tensors at once
  bool symmetric = false;  // one rank stands for all: quick to simulate
  friend bool operator==(const Option&, const Option&) = default;
};
std::string to_string(const Option& option);

class CostCache {
 public:
  explicit CostCache(const PlanQuery& query);
  ~CostCache();
  // The cost of a part of n values; `rounded_inside`: with a strategy of two levels, ranks of one host send bf16. Equal
  // parts are computed once. kInvalid: unknown costs.
  Result<const PartCost*> of(const Option& option, std::size_t n, std::size_t row,
                             bool rounded_inside = false);

 private:
  Result<PartCost> work_out(const Option& option, std::size_t n, std::size_t row, bool rounded_inside);
  struct Writer;  // of the programs of a strategy
  const PlanQuery& query_;
  std::map<const Strategy*, std::unique_ptr<Writer>> writers_;
  std::map<std::tuple<std::string, const Strategy*, std::size_t, bool>, std::unique_ptr<PartCost>> known_;
};

}  // namespace tithe::planner
