// SPDX-License-Identifier: Apache-2.0
#pragma once
// A quick answer to "how long would the step be": list scheduling of parts on four resources of one rank, its compute
// lane, its uplink, its downlink and the link inside its host (Graham 1969, Bounds on multiprocessing timing
// anomalies). What is ready first in the order of parts goes first; a resource does one thing at a time.
//
//   quick      about 0.1 us per stage of a part; the simulator has the last word
//   hidden     what ends before computing does costs nothing: the step is the later of both
#include <cstdint>
#include <utility>
#include <vector>

#include "advice/planner/cost_cache.h"

namespace tithe::planner {

struct Batch {  // a part, or several that are alike, one behind the other
  Seconds ready = 0;
  int priority = 0;
  int count = 1;
  const PartCost* work = nullptr;
};

struct Times {
  Seconds end = 0;                                    // of the last part; 0: there is none
  Seconds compute = 0, up = 0, down = 0, inside = 0;  // for which each resource was busy
};

// Parts in the order of the list where their priorities are equal.
class ListSchedule {
 public:
  Times run(const std::vector<Batch>& batches, int lanes);

 private:
  enum Resource : std::uint8_t {
    kCompute,
    kUp,
    kDown,
    kInside,
    kStage
  };  // the resources; and a stage that may begin
  struct Item {
    const PartCost* work = nullptr;
    std::size_t stage = 0;
    int left = 0;  // of the stage: up, down and inside
  };
  struct Event {
    Seconds at;
    std::uint32_t item;
    Resource what;  // kStage: it may begin; else that resource has done its share of the stage
    bool operator>(const Event& o) const {
      return at != o.at ? at > o.at : std::pair(item, what) > std::pair(o.item, o.what);
    }
  };
  void later(Seconds at, std::uint32_t item, Resource what);
  void wait_for(Resource resource, std::uint32_t item);
  void over(const Event& event);

  std::vector<Item> items_;                    // in the order in which they go first
  std::vector<Event> events_;                  // a heap: the earliest on top
  std::vector<std::uint32_t> queues_[kStage];  // heaps: the first of the items on top
  Times times_;
};

}  // namespace tithe::planner
