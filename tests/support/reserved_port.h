// SPDX-License-Identifier: Apache-2.0
#pragma once
// A TCP port for a listener of this test. A socket is bound to the port and does not listen, so the kernel gives the
// port to no other socket, except to one that asks for this number with SO_REUSEADDR, as rank 0's listener does.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tithe::testing {

class ReservedPort {
 public:
  ReservedPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t size = sizeof any;
    EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&any), size), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &size), 0);
    number_ = ntohs(any.sin_port);
  }
  ~ReservedPort() { close(fd_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  operator int() const { return number_; }  // NOLINT(*-explicit-*): it stands for its number

 private:
  const int fd_;
  int number_ = 0;
};

}  // namespace tithe::testing
