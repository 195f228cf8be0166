// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads on the cores of one machine.
//
//   - turns: a running thread keeps its core for at least one slice. Then it yields to the threads that wait for that
//     core, which take turns. A thread that has just been woken precedes threads that have had a slice.
//   - placed: a woken thread takes a free core, or else waits for the core with the fewest waiting threads. A core that
//     becomes free takes over a thread that has waited for `move` (Linux leaves a thread near its memory until the next
//     tick).
//   - same: if new work has the tag of work that has just ended, it is the same thread and continues on its core.
//   - shares: without a slice, or if one rank's work represents that of all ranks, every running thread gets the same
//     share of the cores, at most one core. There may be as many threads as messages in the kernel, so start and end
//     cost time logarithmic in their number.
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "advisor/sim/flows.h"

namespace tithe::sim {

class Cores {
 public:
  // `represented`: the number of ranks that this work represents. `move`: the time that a thread waits for its core
  // before a free core takes it over.
  explicit Cores(int cores, int represented = 1, Seconds slice = 0, Seconds move = 0);

  // Starts work of this many seconds of one core. `tag` is the caller's.
  void start(Seconds work, std::uint64_t tag, Seconds now);
  // The time of the next change: the end of work, of a slice or of a wait; kNever if there is no work.
  Seconds next_end();
  // Advances to `now`, at most next_end(), and returns the tags of the finished work: core by core; with sharing, in
  // the order of starting. The span is valid until the next advance().
  std::span<const std::uint64_t> advance(Seconds now);
  double used() const { return used_; }  // core seconds used so far

 private:
  struct Work {
    std::uint64_t tag;
    Seconds left;
    Seconds slice_end = 0;
    Seconds since = 0;     // start of its wait
    std::size_t core = 0;  // its core
  };
  struct Sharing {
    Seconds until;  // value of had_ at which it ends
    std::uint64_t order, tag;
    bool operator>(const Sharing& o) const { return until != o.until ? until > o.until : order > o.order; }
  };
  struct Core {
    bool busy = false;
    std::deque<Work> fresh, later;  // waiting threads: just woken; after a slice
    std::size_t waiting() const { return fresh.size() + later.size(); }
  };
  double rate() const;
  void pass(Seconds now);
  void dispatch();
  void place(const Work& work);
  void next_of(std::size_t core);
  void run(Work work, std::size_t core);
  void take_over();
  void plan_dispatch();

  int cores_, represented_;
  Seconds slice_, move_;
  std::vector<Core> core_;
  std::vector<Work> work_;     // running
  std::vector<Work> arrived_;  // without a core yet
  std::vector<Work> over_;     // ended at this moment
  // Without a slice: all running work.
  std::priority_queue<Sharing, std::vector<Sharing>, std::greater<>> sharing_;
  std::uint64_t order_ = 0;
  // Seconds that each work has got since the cores were idle last.
  Seconds had_ = 0;
  std::vector<std::uint64_t> ended_;
  Seconds now_ = 0, end_ = kNever;
  bool dispatched_ = true;
  double used_ = 0;
};

}  // namespace tithe::sim
