// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learns from the kernel that processes of this machine have ended, killed ones not yet waited for included.
#include <vector>

#include "base/unique_fd.h"
#include "tithe/seam/transport.h"

namespace tithe::ucx {

class Watch {
 public:
  Watch() { renew(); }

  // A kernel that cannot do it (before Linux 5.3), or will not, leaves the rank to UCX's own checks.
  void add(Rank rank, std::uint32_t process);
  int descriptor() const { return epoll_.get(); }  // readable when a process ended
  Rank ended();                                    // each one once; -1: none

 private:
  void renew();
  bool watch(Rank rank);

  UniqueFd epoll_;
  std::vector<UniqueFd> processes_;  // by rank; not open where not watched
};

}  // namespace tithe::ucx
