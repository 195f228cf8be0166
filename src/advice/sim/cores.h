// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads on the cores of one machine.
//
//   turns     a thread that runs keeps its core for at least a slice; then it gives way to those that wait for that
//             core, who take turns. A thread that has just begun goes before those that have had
//             theirs
//   placed    a thread that wakes takes a core that is free, else it waits for one: that with the fewest that wait. A
//             core that comes free later takes it over once it has waited for a while (Linux leaves a thread where its
//             memory is near, until its clock's next tick)
//   same      work with the tag of work that has ended at this moment is the same thread's: it goes on where that was
//   shares    without a slice, or where one rank's work stands for that of all: each that runs gets the same share of
//             the cores, and at most one. As many then run as there are messages whose bytes a kernel moves: work in
//             and out costs the logarithm of it
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "advice/sim/flows.h"

namespace tithe::sim {

class Cores {
 public:
  // `alike`: so many ranks do the same at the same time, of which this work is one's. `move`: how long work waits for
  // its core before a free one takes it.
  explicit Cores(int cores, int alike = 1, Seconds slice = 0, Seconds move = 0);

  // Work of so many seconds of one core, from now on. `tag` is the caller's.
  void start(Seconds work, std::uint64_t tag, Seconds now);
  // When something changes by itself: work ends, a slice, or a wait; kNever if there is no work.
  Seconds next_end();
  // Moves to `now`, at most next_end(), and takes the tags of the work that has ended: core by core; where it is
  // shared, in the order in which it began. They stay until the next advance().
  std::span<const std::uint64_t> advance(Seconds now);
  double used() const { return used_; }  // core seconds so far, of this work

 private:
  struct Work {
    std::uint64_t tag;
    Seconds left;
    Seconds slice_end = 0;
    Seconds since = 0;     // it waits
    std::size_t core = 0;  // that it is on
  };
  struct Sharing {
    Seconds until;  // what all work has had when it ends
    std::uint64_t order, tag;
    bool operator>(const Sharing& o) const { return until != o.until ? until > o.until : order > o.order; }
  };
  struct Core {
    bool busy = false;
    std::deque<Work> fresh, later;  // that wait for it: have just begun; have had a slice
    std::size_t waiting() const { return fresh.size() + later.size(); }
  };
  double rate() const;
  void pass(Seconds now);
  void dispatch();
  void place(const Work& work);
  void next_of(std::size_t core);
  void run(Work work, std::size_t core);
  void take_over();
  void look_ahead();

  int cores_, alike_;
  Seconds slice_, move_;
  std::vector<Core> core_;
  std::vector<Work> work_;     // that runs
  std::vector<Work> arrived_;  // has no core yet
  std::vector<Work> over_;     // has ended at this moment
  std::priority_queue<Sharing, std::vector<Sharing>, std::greater<>>
      sharing_;  // without a slice: all that runs
  std::uint64_t order_ = 0;
  Seconds had_ = 0;  // by work that began when the cores were idle last, and never ends
  std::vector<std::uint64_t> ended_;
  Seconds now_ = 0, end_ = kNever;
  bool looked_ = true;
  double used_ = 0;
};

}  // namespace tithe::sim
