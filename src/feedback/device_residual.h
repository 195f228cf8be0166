// SPDX-License-Identifier: Apache-2.0
#pragma once
// The residual of a holding is afar while a GPU works on it: both copies lie there, and the host has none. The memory
// there stays when they come home, for the next time.
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/large.h"
#include "device/ferry.h"

namespace tithe::carry {

// As the last commit left it and as the open round leaves it; empty where nothing is kept.
using Copies = std::array<LargeFloats, 2>;

class Afar {
 public:
  bool away() const { return away_; }
  // Copies of n values go there. Where that fails they are here still.
  Status leave(Copies& here, std::size_t n, const std::shared_ptr<device::Ferry>& by);
  // They count here from now on, whether that has failed or not.
  Status come_home(Copies& here, std::size_t n);
  // One of them can be read here, until leave() is called again.
  Status see(Copies& here, int which, std::size_t n) const;
  // Value `first` of a copy that is away.
  device::Address at(int which, std::size_t first) const { return copies_[which].at() + 4 * first; }

 private:
  std::shared_ptr<device::Ferry> by_;
  std::array<device::Memory, 2> copies_;
  bool away_ = false;
};

}  // namespace tithe::carry
