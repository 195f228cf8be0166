// SPDX-License-Identifier: Apache-2.0
// pidfds in an epoll set; a pidfd is readable once its process has ended.
#include "transport/ucx/process_monitor.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tithe::ucx {

// Creates a new epoll set without the processes that were reported and could not be removed from the old one.
void ProcessMonitor::renew() {
  epoll_ = UniqueFd::from([] { return epoll_create1(EPOLL_CLOEXEC); });
  for (std::size_t r = 0; r < processes_.size(); ++r)
    if (processes_[r].is_open()) watch(static_cast<Rank>(r));
}

bool ProcessMonitor::watch(Rank rank) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = rank}};
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, processes_[static_cast<std::size_t>(rank)].get(), &event) ==
         0;
}

void ProcessMonitor::add(Rank rank, std::uint32_t process) {
  UniqueFd fd = UniqueFd::from([process] {  // close-on-exec
    return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
  });
  if (!fd.is_open()) return;
  const auto r = static_cast<std::size_t>(rank);
  if (processes_.size() <= r) processes_.resize(r + 1);
  processes_[r] = std::move(fd);
  if (!watch(rank)) processes_[r].close();
}

// EPOLL_CTL_DEL removes the descriptor from the set. If it were only closed, it would stay in the set, and be reported
// again and again, as long as any process has a copy.
Rank ProcessMonitor::ended() {
  epoll_event event{};
  if (epoll_wait(epoll_.get(), &event, 1, 0) != 1) return -1;
  const Rank rank = event.data.fd;
  const auto r = static_cast<std::size_t>(rank);
  const bool watched = r < processes_.size() && processes_[r].is_open();
  const bool left = watched && epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, processes_[r].get(), nullptr) == 0;
  if (watched) processes_[r].close();
  if (!left) renew();
  return watched ? rank : -1;
}

}  // namespace tithe::ucx
