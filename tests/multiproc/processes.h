// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks as processes of their own: forked from a parent that has touched neither UCX nor threads, watched
// through one pipe each.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tithe/connect.h"

namespace tithe::testing {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

// A directory of this test's own, gone with it.
class Scratch {
 public:
  Scratch() {
    std::string path = (std::filesystem::temp_directory_path() / "tithe-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

// A rank reports to its parent by lines of text.
class Reporter {
 public:
  explicit Reporter(int fd) : fd_(fd) {}
  void say(const std::string& line) const {
    const std::string text = line + "\n";
    [[maybe_unused]] const auto n = write(fd_, text.data(), text.size());
  }

 private:
  int fd_;
};

class Processes {
 public:
  using Body = std::function<void(Rank, const Reporter&)>;

  Processes(int world, const Body& body) {
    std::fflush(nullptr);
    for (Rank r = 0; r < world; ++r) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
      const pid_t pid = fork();
      if (pid == 0) {
        close(ends[0]);
        body(r, Reporter(ends[1]));
        std::fflush(nullptr);
        _exit(0);
      }
      close(ends[1]);
      children_.push_back({.pid = pid, .pipe = ends[0]});
    }
  }
  ~Processes() {
    for (Child& c : children_) {
      if (!c.reaped) {
        kill(c.pid, SIGKILL);
        waitpid(c.pid, nullptr, 0);
      }
      close(c.pipe);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void signal(Rank r, int number) { kill(at(r).pid, number); }
  pid_t process(Rank r) { return at(r).pid; }

  // The next line of rank r; empty at its end, or after the time limit.
  std::string line(Rank r, Seconds most) {
    Child& c = at(r);
    const auto deadline = Clock::now() + most;
    for (;;) {
      if (const auto end = c.text.find('\n'); end != std::string::npos) {
        std::string out = c.text.substr(0, end);
        c.text.erase(0, end + 1);
        return out;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd p{.fd = c.pipe, .events = POLLIN, .revents = 0};
      if (left <= 0 || ::poll(&p, 1, static_cast<int>(left)) <= 0) return {};
      char buffer[512];
      const ssize_t n = read(c.pipe, buffer, sizeof buffer);
      if (n <= 0) return {};
      c.text.append(buffer, static_cast<std::size_t>(n));
    }
  }

  // The first line of rank r that begins with `start`; empty if it does not come.
  std::string line_with(Rank r, std::string_view start, Seconds most) {
    const auto deadline = Clock::now() + most;
    for (;;) {
      std::string l = line(r, deadline - Clock::now());
      if (l.empty() || l.starts_with(start)) return l;
    }
  }

  // Its wait status, or -1 when it has not ended by then.
  int end(Rank r, Seconds most) {
    Child& c = at(r);
    const auto deadline = Clock::now() + most;
    int status = -1;
    while (!c.reaped) {
      if (waitpid(c.pid, &status, WNOHANG) == c.pid) {
        c.reaped = true;
        return status;
      }
      if (Clock::now() >= deadline) return -1;
      usleep(5000);
    }
    return -1;
  }

 private:
  struct Child {
    pid_t pid = -1;
    int pipe = -1;
    bool reaped = false;
    std::string text = {};
  };
  Child& at(Rank r) { return children_[static_cast<std::size_t>(r)]; }
  std::vector<Child> children_;
};

}  // namespace tithe::testing
