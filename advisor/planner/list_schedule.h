// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fast estimate of the step time: list scheduling of parts on four resources of one rank, namely its compute lanes,
// its uplink, its downlink and the link inside its host (Graham 1969, Bounds on multiprocessing timing anomalies).
// Among ready items, a resource takes the first one in the order of parts. A resource handles one item at a time.
//
// An estimate takes about 0.1 us per stage of a part; the simulator confirms the result. Communication that ends before
// the computation costs nothing: the step ends when both have ended.
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "advisor/planner/cost_cache.h"

namespace tithe::planner {

// One part, or several equal ones in sequence.
struct Batch {
  Seconds ready = 0;
  int priority = 0;
  int count = 1;
  const PartCost* work = nullptr;
};

struct Times {
  Seconds end = 0;                                    // of the last part; 0: there are no parts
  Seconds compute = 0, up = 0, down = 0, inside = 0;  // busy time of each resource
};

// Parts with equal priority run in the order of the list.
class ListSchedule {
 public:
  Times run(const std::vector<Batch>& batches, int lanes);

 private:
  // The resources; kStage is the event that a stage may begin.
  enum Resource : std::uint8_t { kCompute, kUp, kDown, kInside, kStage };
  struct Item {
    const PartCost* work = nullptr;
    std::size_t stage = 0;
    int left = 0;  // unfinished of the stage's up, down and inside
  };
  struct Event {
    Seconds at;
    std::uint32_t item;
    Resource what;  // kStage: the stage may begin; else the resource has finished its share of it
    bool operator>(const Event& o) const {
      return at != o.at ? at > o.at : std::pair(item, what) > std::pair(o.item, o.what);
    }
  };
  void later(Seconds at, std::uint32_t item, Resource what);
  void wait_for(Resource resource, std::uint32_t item);
  void over(const Event& event);

  template <typename T>
  using Heap = std::priority_queue<T, std::vector<T>, std::greater<>>;
  std::vector<Item> items_;             // in order of precedence
  Heap<Event> events_;                  // the earliest event on top
  Heap<std::uint32_t> queues_[kStage];  // the first item on top
  Times times_;
};

}  // namespace tithe::planner
