// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cost of a part to one rank, as stages: computation, then sending, then receiving, and again. It is derived from
// the engine's own program for the part (engine/program/program.h), so strategies need no formula here.
//
//   - stage: the hop number of a message is one more than the largest hop number of the messages that it was made from.
//     Stage h holds the computation that depends on h hops, the frames sent after it, and the frames received at hop h.
//   - typical: if ranks differ, the cost is that of the rank with the most work.
//   - inside: messages between ranks of one host use the link that all ranks of the host share.
//   - shared: a host's link is shared by its ranks that send to other hosts.
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "advisor/planner/plan_query.h"

namespace tithe::planner {

struct CostStage {
  Seconds compute = 0;
  Seconds up = 0, down = 0;  // time of its messages on the link, sent and received
  Seconds delay = 0;         // from the end of sending to the start of receiving
  Seconds inside = 0;        // on the link inside the host
};
struct PartCost {
  std::vector<CostStage> stages;
  Seconds link = 0;    // busy time of the busiest link, whatever the order of messages
  CostStage all = {};  // sum over all stages
};

// An option for the exchange of a part: codec and strategy.
struct Option {
  Spec spec;
  const Strategy* strategy = nullptr;
  bool lossy = false;      // the user had to allow it
  bool searched = true;    // false: only a baseline for all tensors
  bool symmetric = false;  // one simulated rank represents all, so it is quick to simulate
  friend bool operator==(const Option&, const Option&) = default;
};
std::string to_string(const Option& option);

class CostCache {
 public:
  explicit CostCache(const PlanQuery& query);
  ~CostCache();
  // The cost of a part of n values. `rounded_inside`: with a two-level strategy, ranks of one host exchange bf16. Equal
  // parts are computed once. kInvalid: the codec's costs are unknown.
  Result<const PartCost*> of(const Option& option, std::size_t n, std::size_t row,
                             bool rounded_inside = false);

 private:
  Result<PartCost> work_out(const Option& option, std::size_t n, std::size_t row, bool rounded_inside);
  struct Writer;  // writes the programs of a strategy
  const PlanQuery& query_;
  std::map<const Strategy*, std::unique_ptr<Writer>> writers_;
  std::map<std::tuple<std::string, const Strategy*, std::size_t, bool>, std::unique_ptr<PartCost>> known_;
};

}  // namespace tithe::planner
