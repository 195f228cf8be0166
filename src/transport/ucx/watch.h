// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learns from the kernel that processes of this machine have ended, killed ones not yet waited for included.
#include <vector>

#include "tithe/seam/transport.h"

namespace tithe::ucx {

class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // A kernel that cannot do it (before Linux 5.3), or will not, leaves the rank to UCX's own checks.
  void add(Rank rank, std::uint32_t process);
  int descriptor() const { return epoll_; }  // readable when a process ended
  Rank ended();                              // each one once; -1: none

 private:
  int epoll_;
  std::vector<int> processes_;  // by rank; -1 where not watched
};

}  // namespace tithe::ucx
