// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streams and events of the fake GPU: work in queues, done as late as it may be, in an order that is drawn.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace tithe::fake {

struct Work {
  std::uint64_t stream = 0;
  std::shared_ptr<Work> after;         // the recorded work of the event that this waits for
  std::function<int()> run;            // an error, or 0
  std::vector<std::uint64_t> touches;  // addresses, of either memory
  std::uint64_t module = 0;
  bool done = false;
};

class Streams {
 public:
  explicit Streams(std::uint64_t seed) : draw_(seed) {}

  void add(std::shared_ptr<Work> work) { queues_[work->stream].push_back(std::move(work)); }
  std::shared_ptr<Work> last_of(std::uint64_t stream) const {
    const auto found = queues_.find(stream);
    return found == queues_.end() ? nullptr : found->second.back();
  }
  // True if any pending work satisfies the predicate.
  bool any(const std::function<bool(const Work&)>& of) const {
    for (const auto& [stream, queue] : queues_)
      for (const auto& work : queue)
        if (of(*work)) return true;
    return false;
  }
  // Work of a kind that is not done yet will not be.
  void forget(const std::function<bool(const Work&)>& of) {
    for (const auto& [stream, queue] : queues_)
      for (const auto& work : queue)
        if (of(*work)) work->run = {};
  }
  std::uint64_t draw(std::uint64_t below) {
    return std::uniform_int_distribution<std::uint64_t>(0, below - 1)(draw_);
  }

  // Runs one piece of work, usually one that `wanted` depends on; returns the error that it ended with.
  int step(const std::shared_ptr<Work>& wanted) {
    std::vector<std::uint64_t> ready, needed;
    for (const auto& [stream, queue] : queues_)
      if (is_ready(*queue.front())) ready.push_back(stream);
    find_needed(wanted->stream, needed);
    const std::vector<std::uint64_t>& from = draw(4) == 0 ? ready : needed;
    const std::uint64_t stream = from[draw(from.size())];
    const auto queue = queues_.find(stream);
    const std::shared_ptr<Work> work = queue->second.front();
    const int error = work->run ? work->run() : 0;
    work->done = true;
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
    return error;
  }
  int run_until(const std::shared_ptr<Work>& wanted) {
    int error = 0;
    while (wanted != nullptr && !wanted->done && error == 0) error = step(wanted);
    return error;
  }

 private:
  static bool is_ready(const Work& work) { return work.after == nullptr || work.after->done; }
  // The heads of queues that must run first. Events are ordered, so there are no cycles.
  void find_needed(std::uint64_t stream, std::vector<std::uint64_t>& needed) {
    const Work& head = *queues_[stream].front();
    if (is_ready(head))
      needed.push_back(stream);
    else
      find_needed(head.after->stream, needed);
  }

  std::map<std::uint64_t, std::deque<std::shared_ptr<Work>>> queues_;  // of work that is not done
  std::mt19937_64 draw_;
};

}  // namespace tithe::fake
