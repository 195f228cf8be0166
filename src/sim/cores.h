// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads on the cores of one machine: each that runs gets the same share, and at most one core. The kernel's scheduler
// comes close where threads run for longer than its slices.
#include <cstdint>
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
  // Moves to `now`, at most next_end(), and takes the tags of the work that has ended, in the order in which it began.
  std::span<const std::uint64_t> advance(Seconds now);
  double used() const { return used_; }  // core seconds so far

 private:
  struct Work {
    std::uint64_t tag;
    Seconds left;
  };
  double rate() const;
  void move(Seconds now);
  void look_ahead();

  int cores_, alike_;
  std::vector<Work> work_;
  std::vector<std::uint64_t> ended_;
  Seconds now_ = 0, end_ = kNever;
  double used_ = 0;
};

}  // namespace tithe::sim
