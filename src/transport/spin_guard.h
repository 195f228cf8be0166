// SPDX-License-Identifier: Apache-2.0
#pragma once
// Keeps an event loop from spinning. Two kinds of source stay ready without any work and wake the loop again and again:
// a closed descriptor in an epoll set, and a shared-memory queue whose writer was preempted in the middle of a message.
// After kMaxIdlePolls such turns in a row, the loop pauses for 1 ms per turn until a byte moves. It then uses a few
// percent of a core and still meets its deadlines. If nothing moves for about 10 s, one log line reports it.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace tithe {

class SpinGuard {
 public:
  static constexpr int kMaxIdlePolls = 1000;
  static constexpr std::chrono::milliseconds kPause{1};

  explicit SpinGuard(int pauses_before_line = 10'000) : pauses_before_line_(pauses_before_line) {}

  void moved() { idle_polls_ = 0; }
  // Call after a wait that returned early although nothing moved.
  void idle_wakeup() {
    if (++idle_polls_ <= kMaxIdlePolls) return;
    std::this_thread::sleep_for(kPause);
    if (idle_polls_ - kMaxIdlePolls >= pauses_before_line_) spinning_.store(true, std::memory_order_relaxed);
  }
  // The log line, once. Any thread may call it.
  std::vector<std::string> messages() {
    if (!spinning_.load(std::memory_order_relaxed) || reported_.exchange(true)) return {};
    return {
        "the transport wakes repeatedly without an event, and now pauses 1 ms between two polls: an event "
        "source of this process stays ready (please report it)"};
  }

 private:
  const int pauses_before_line_;
  int idle_polls_ = 0;
  std::atomic<bool> spinning_{false}, reported_{false};
};

}  // namespace tithe
