// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/watch.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tithe::ucx {

Watch::Watch() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Watch::~Watch() {
  for (const int fd : processes_)
    if (fd >= 0) close(fd);
  if (epoll_ >= 0) close(epoll_);
}

void Watch::add(Rank rank, std::uint32_t process) {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));  // close-on-exec
  if (fd < 0) return;
  const auto r = static_cast<std::size_t>(rank);
  if (processes_.size() <= r) processes_.resize(r + 1, -1);
  processes_[r] = fd;
  epoll_event event{.events = EPOLLIN, .data = {.fd = rank}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

Rank Watch::ended() {
  epoll_event event{};
  if (processes_.empty() || epoll_wait(epoll_, &event, 1, 0) != 1) return -1;
  const Rank rank = event.data.fd;
  int& fd = processes_[static_cast<std::size_t>(rank)];
  close(fd);  // leaves the set with it
  fd = -1;
  return rank;
}

}  // namespace tithe::ucx
