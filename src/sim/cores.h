// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads on the cores of one machine.
//
//   turns     a thread that runs keeps its core for at least a slice; then it gives way to those that wait, who take
//             turns. Who has just begun goes before those that have had theirs. So a thread that wakes while all cores
//             are busy waits for the end of a slice, and what it then does is done at once (what Linux' scheduler does)
//   same      work with the tag of work that has ended at this moment is the same thread's: it goes on where that was
//   shares    without a slice, or where one rank's work stands for that of all: each that runs gets the same share of
//             the cores, and at most one
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "sim/flows.h"

namespace tithe::sim {

class Cores {
 public:
  // `alike`: so many ranks do the same at the same time, of which this work is one's.
  explicit Cores(int cores, int alike = 1, Seconds slice = 0)
      : cores_(cores), alike_(alike), slice_(alike == 1 ? slice : 0) {}

  // Work of so many seconds of one core, from now on. `tag` is the caller's.
  void start(Seconds work, std::uint64_t tag, Seconds now);
  // When something changes by itself: work ends, or a slice; kNever if there is no work.
  Seconds next_end();
  // Moves to `now`, at most next_end(), and takes the tags of the work that has ended, in the order in which it began.
  std::span<const std::uint64_t> advance(Seconds now);
  double used() const { return used_; }  // core seconds so far, of this work

 private:
  struct Work {
    std::uint64_t tag;
    Seconds left;
    Seconds slice_end = 0;
  };
  double rate() const;
  bool waits() const { return !fresh_.empty() || !later_.empty(); }
  void move(Seconds now);
  void dispatch();
  void look_ahead();

  int cores_, alike_;
  Seconds slice_;
  std::vector<Work> work_;          // that runs
  std::deque<Work> fresh_, later_;  // that waits: has just begun; has had its slice
  std::vector<Work> over_;          // that has ended at this moment
  std::vector<std::uint64_t> ended_;
  Seconds now_ = 0, end_ = kNever;
  bool looked_ = true;
  double used_ = 0;
};

}  // namespace tithe::sim
