// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads on the cores of one machine: each that runs gets the same share, and at most one core. The kernel's scheduler
// comes close where threads run for longer than its slices.
//
//   cheap   as many run as there are messages whose bytes a kernel moves: work in and out costs the logarithm of it
#include <cstdint>
#include <queue>
#include <span>
#include <vector>

#include "sim/flows.h"

namespace tithe::sim {

class Cores {
 public:
  // `alike`: so many ranks do the same at the same time, of which this work is one's.
  explicit Cores(int cores, int alike = 1) : cores_(cores), alike_(alike) {}

  // Work of so many seconds of one core, from now on. `tag` is the caller's.
  void start(Seconds work, std::uint64_t tag, Seconds now);
  // When the next work ends, if nothing else starts; kNever if there is none.
  Seconds next_end() const { return end_; }
  // Moves to `now`, at most next_end(), and takes the tags of the work that has ended: what had least left first, and
  // of equals what began first.
  std::span<const std::uint64_t> advance(Seconds now);
  double used() const { return used_; }  // core seconds so far

 private:
  struct Work {
    Seconds until;  // what all work has had when it ends
    std::uint64_t order, tag;
    bool operator>(const Work& o) const { return until != o.until ? until > o.until : order > o.order; }
  };
  double rate() const;
  void move(Seconds now);
  void look_ahead();

  int cores_, alike_;
  std::priority_queue<Work, std::vector<Work>, std::greater<>> work_;
  std::vector<std::uint64_t> ended_;
  std::uint64_t order_ = 0;
  Seconds had_ = 0;  // by work that began when the cores were idle last, and never ends
  Seconds now_ = 0, end_ = kNever;
  double used_ = 0;
};

}  // namespace tithe::sim
