// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reports the end of processes on this machine, including killed ones that their parent has not waited for (pidfd).
#include <vector>

#include "base/unique_fd.h"
#include "tithe/seam/transport.h"

namespace tithe::ucx {

class ProcessMonitor {
 public:
  ProcessMonitor() { renew(); }

  // If the kernel refuses (before Linux 5.3, or by policy), only UCX's own checks watch the rank.
  void add(Rank rank, std::uint32_t process);
  int descriptor() const { return epoll_.get(); }  // readable when a process has ended
  Rank ended();                                    // reports each rank once; -1: none

 private:
  void renew();
  bool watch(Rank rank);

  UniqueFd epoll_;
  std::vector<UniqueFd> processes_;  // pidfds by rank; closed if not watched
};

}  // namespace tithe::ucx
