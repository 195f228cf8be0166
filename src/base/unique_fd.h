// SPDX-License-Identifier: Apache-2.0
#pragma once
// File descriptors that no child process keeps.
//
// A child made by fork() has a copy of every descriptor. While the copy is open, a connection does not end with the
// parent, a file stays locked, and a descriptor that the parent has closed stays in its epoll sets. So a child closes
// each UniqueFd of its parent before fork() returns there (pthread_atfork), by close() alone, which the parent does not
// notice. A UniqueFd that a child has inherited is empty: its number may be another file's by then.
//
// fork() is the only way to a child that is seen: clone() and vfork() run no such code, which is why an epoll set is
// always told before a descriptor of it is closed, and why all descriptors are close-on-exec.
#include <utility>

namespace tithe {

namespace forks {

// While one lives, no fork() of this process begins. Its destructor leaves errno as it is.
struct Hold {
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};
void own(int fd);  // under a Hold
void close_owned(int fd);
unsigned count();  // of the forks between the first process and this one

}  // namespace forks

class UniqueFd {
 public:
  UniqueFd() = default;
  // `open` returns a new descriptor, or -1 with errno set. No fork() begins before it returns, so it does not wait.
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
