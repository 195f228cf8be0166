// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/process_monitor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "transport/ucx/worker.h"

namespace tithe::ucx {
namespace {

using namespace std::chrono_literals;

pid_t sleeper() {
  const pid_t process = fork();
  if (process == 0) {
    for (;;) pause();
  }
  return process;
}

void end(pid_t process) {
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
}

bool is_readable(int fd) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&p, 1, 0) == 1;
}

// A closed descriptor leaves an epoll set only when no process has a copy. Without EPOLL_CTL_DEL, the set would report
// the first process again and again while the child lives.
TEST(ProcessMonitor, reports_each_process_once_despite_forked_children) {
  const pid_t first = sleeper(), second = sleeper();
  ProcessMonitor watch;
  watch.add(1, static_cast<std::uint32_t>(first));
  watch.add(2, static_cast<std::uint32_t>(second));
  EXPECT_EQ(watch.ended(), -1);
  const auto child = static_cast<pid_t>(syscall(SYS_fork));  // like clone(): runs no fork handlers
  if (child == 0) {
    for (;;) pause();
  }
  end(first);
  EXPECT_EQ(watch.ended(), 1);
  EXPECT_EQ(watch.ended(), -1);
  EXPECT_FALSE(is_readable(watch.descriptor()));
  end(second);
  EXPECT_EQ(watch.ended(), 2);
  EXPECT_EQ(watch.ended(), -1);
  EXPECT_FALSE(is_readable(watch.descriptor()));
  end(child);
}

// A source that stays ready gives the loop some 1000 turns, and then at most one per millisecond.
TEST(Worker, does_not_spin_on_a_permanently_ready_source) {
  Result<std::unique_ptr<Worker>> worker = Worker::open({.transports = "tcp", .devices = ""}, 30s, 2);
  ASSERT_TRUE(worker.ok()) << worker.status().what();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  const auto begin = std::chrono::steady_clock::now();
  int turns = 0;
  for (; std::chrono::steady_clock::now() - begin < 500ms; ++turns) {
    (*worker)->progress();
    EXPECT_FALSE((*worker)->wait(100ms, ends[0]));
  }
  EXPECT_LE(turns, SpinGuard::kMaxIdlePolls + 500 + 10);
  EXPECT_TRUE((*worker)->messages().empty()) << "reported only after a long time";
  (*worker)->wake();
  EXPECT_TRUE((*worker)->wait(100ms, ends[0])) << "wake() works during a pause";
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tithe::ucx
