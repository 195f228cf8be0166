// SPDX-License-Identifier: Apache-2.0
// Discrete-event list scheduling with one heap of events and one heap of waiting items per resource.
#include "advisor/planner/list_schedule.h"

#include <algorithm>

namespace tithe::planner {

void ListSchedule::later(Seconds at, std::uint32_t item, Resource what) { events_.push({at, item, what}); }

void ListSchedule::wait_for(Resource resource, std::uint32_t item) { queues_[resource].push(item); }

// Handles the end of a computation, of a transfer, or of a delay: the item waits for its next resources.
void ListSchedule::over(const Event& e) {
  Item& item = items_[e.item];
  if (e.what == kCompute) {
    item.left = 2;
    wait_for(kUp, e.item);
    if (item.work->stages[item.stage].inside > 0) {
      ++item.left;
      wait_for(kInside, e.item);
    }
    return;
  }
  if (e.what != kStage) {
    if (--item.left > 0) return;
    const Seconds delay = item.work->stages[item.stage].delay;
    ++item.stage;
    if (delay > 0) {
      later(e.at + delay, e.item, kStage);
      return;
    }
  }
  if (item.stage == item.work->stages.size())
    times_.end = std::max(times_.end, e.at);
  else
    wait_for(kCompute, e.item);
}

// Event-driven list scheduling. At each time, all due events are handled, then each free resource takes its first
// waiting item. The heaps are empty before and afterwards.
Times ListSchedule::run(const std::vector<Batch>& batches, int lanes) {
  items_.clear();
  times_ = {};
  std::vector<std::size_t> order(batches.size());
  for (std::size_t l = 0; l < batches.size(); ++l) order[l] = l;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return batches[a].priority > batches[b].priority; });
  for (const std::size_t l : order)
    for (int k = 0; k < batches[l].count; ++k) {
      items_.push_back({batches[l].work});
      later(batches[l].ready, static_cast<std::uint32_t>(items_.size()) - 1, kStage);
    }
  int free[kStage] = {std::max(1, lanes), 1, 1, 1};
  Seconds* busy[kStage] = {&times_.compute, &times_.up, &times_.down, &times_.inside};
  while (!events_.empty()) {
    const Seconds now = events_.top().at;
    while (!events_.empty() && events_.top().at <= now) {
      const Event e = events_.top();
      events_.pop();
      if (e.what != kStage) ++free[e.what];
      over(e);
    }
    for (const Resource r : {kCompute, kUp, kDown, kInside})
      while (free[r] > 0 && !queues_[r].empty()) {
        const std::uint32_t i = queues_[r].top();
        queues_[r].pop();
        const CostStage& stage = items_[i].work->stages[items_[i].stage];
        const Seconds parts[] = {stage.compute, stage.up, stage.down, stage.inside};
        const Seconds takes = parts[r];
        *busy[r] += takes;
        --free[r];
        later(now + takes, i, r);
        if (r == kUp) wait_for(kDown, i);  // the receiver gets the bytes while they are sent
      }
  }
  return times_;
}

}  // namespace tithe::planner
