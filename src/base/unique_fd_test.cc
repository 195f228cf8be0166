// SPDX-License-Identifier: Apache-2.0
#include "base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace tithe {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// The result of `body` in a child made by fork().
int in_a_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Two connected sockets.
std::array<UniqueFd, 2> pair() {
  int ends[2] = {-1, -1};
  UniqueFd one = UniqueFd::from(
      [&] { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? ends[0] : -1; });
  UniqueFd other = UniqueFd::from([&] { return ends[1]; });
  return {std::move(one), std::move(other)};
}

TEST(UniqueFd, closes_once_and_moves) {
  UniqueFd none;
  EXPECT_FALSE(none.is_open());
  UniqueFd one = UniqueFd::from([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
  const int fd = one.get();
  ASSERT_TRUE(is_open(fd));
  none = std::move(one);
  EXPECT_EQ(none.get(), fd);
  none.close();
  none.close();
  EXPECT_FALSE(is_open(fd));
  const UniqueFd failed = UniqueFd::from([] { return open("/no/such/file", O_RDONLY); });
  EXPECT_FALSE(failed.is_open());
  EXPECT_EQ(errno, ENOENT);
}

TEST(UniqueFd, a_forked_child_has_none_and_its_parent_keeps_it) {
  UniqueFd one = UniqueFd::from([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
  const int fd = one.get();
  EXPECT_EQ(in_a_child([&] { return is_open(fd) ? 1 : one.is_open() ? 2 : 0; }), 0);
  EXPECT_TRUE(is_open(fd));
}

TEST(UniqueFd, a_child_reports_descriptors_of_its_ancestors) {
  const UniqueFd one = UniqueFd::from([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
  EXPECT_EQ(in_a_child([] { return forks::inherited() ? 0 : 1; }), 0);
  EXPECT_EQ(in_a_child([] { return in_a_child([] { return forks::inherited() ? 0 : 1; }); }), 0);
  EXPECT_FALSE(forks::inherited());
}

// A connection must end with its process, although a forked child is still alive.
TEST(UniqueFd, connection_ends_with_its_process_despite_a_living_child) {
  auto [mine, its] = pair();
  const pid_t child = fork();  // has copies of both ends until fork() returns
  if (child == 0) {
    pause();
    _exit(0);
  }
  its.close();
  const timeval most{.tv_sec = 20, .tv_usec = 0};  // limit for a failing test
  setsockopt(mine.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  std::uint8_t byte = 0;
  EXPECT_EQ(recv(mine.get(), &byte, 1, 0), 0) << "the other end is open in the child";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// In the child, the number of a closed descriptor may belong to another file, which an inherited UniqueFd must not
// touch.
TEST(UniqueFd, inherited_descriptor_does_not_close_a_reused_number) {
  UniqueFd one = UniqueFd::from([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
  const int fd = one.get();
  EXPECT_EQ(in_a_child([&] {
              if (dup2(0, fd) != fd) return 1;  // a file of the child
              UniqueFd moved = std::move(one);
              if (moved.get() != -1) return 2;
              moved.close();
              return is_open(fd) ? 0 : 3;
            }),
            0);
  EXPECT_EQ(in_a_child([&] {  // a descriptor opened by the child is closed in its own children
              UniqueFd own = UniqueFd::from([&] { return dup2(0, fd); });
              one.close();
              if (!is_open(fd)) return 1;
              return in_a_child([&] { return is_open(fd) ? 1 : 0; });
            }),
            0);
}

// Threads open and close descriptors while the process forks: a child has none of them, and none of its own files is
// closed.
TEST(UniqueFd, forks_beside_threads_that_open_and_close) {
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!over) {
        UniqueFd socket = UniqueFd::from([] { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
        const int plain = open("/dev/zero", O_RDONLY | O_CLOEXEC);  // may reuse the number of a closed socket
        ::close(plain);
      }
    });
  const int mine = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  for (int k = 0; k < 100; ++k)
    EXPECT_EQ(in_a_child([&] {
                if (!is_open(mine)) return 1;
                for (int fd = 3; fd < 256; ++fd) {
                  int type = 0;
                  socklen_t size = sizeof type;
                  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_DGRAM) return 2;
                }
                return 0;
              }),
              0);
  over = true;
  for (std::thread& t : threads) t.join();
  ::close(mine);
}

}  // namespace
}  // namespace tithe
