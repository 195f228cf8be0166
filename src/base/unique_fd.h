// SPDX-License-Identifier: Apache-2.0
#pragma once
// File descriptors that child processes do not keep.
//
// A child made by fork() has a copy of every descriptor. While the copy is open, a connection does not end with the
// parent, a file stays locked, and a descriptor closed by the parent stays in its epoll sets. So a child closes each
// UniqueFd of its parent before fork() returns in the child (pthread_atfork), by close() alone, which does not affect
// the parent. An inherited UniqueFd is empty in the child, since its number may belong to another file by then.
//
// Only fork() runs this code; clone() and vfork() do not. Therefore a descriptor is always removed from an epoll set
// before it is closed, and all descriptors are close-on-exec.
#include <utility>

namespace tithe {

namespace forks {

// While a Hold exists, no fork() of this process begins. Its destructor preserves errno.
struct Hold {
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};
void own(int fd);  // the caller must have a Hold
void close_owned(int fd);
unsigned count();  // number of forks between the first process and this one
// True if this process descends by fork() from a process that owned descriptors at the fork: it had a transport open,
// whose threads may have held locks of libraries. In the child nobody releases them.
bool inherited();

}  // namespace forks

class UniqueFd {
 public:
  UniqueFd() = default;
  // `open` returns a new descriptor, or -1 with errno set. It must not block, since no fork() begins before it returns.
  template <typename Open>
  static UniqueFd from(const Open& open) {
    UniqueFd made;
    const forks::Hold hold;
    made.fd_ = open();
    if (made.fd_ >= 0) forks::own(made.fd_);
    return made;
  }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), forks_(other.forks_) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(forks_, other.forks_);
    return *this;
  }
  ~UniqueFd() { close(); }

  int get() const { return forks_ == forks::count() ? fd_ : -1; }
  bool is_open() const { return get() >= 0; }
  void close() {
    const int fd = get();
    fd_ = -1;
    if (fd >= 0) forks::close_owned(fd);
  }

 private:
  int fd_ = -1;
  unsigned forks_ = forks::count();
};

}  // namespace tithe
