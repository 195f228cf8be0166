// SPDX-License-Identifier: Apache-2.0
#pragma once
// A loop that waits for events must not spin. An event source that is ready for ever, and brings nothing to do, would
// wake it without end: a descriptor that was closed in an epoll set, a library that asks to be called again and does
// nothing then. After kMost such turns in a row the loop is told to pause a millisecond in each, until something moves:
// it then uses a few percent of a core, deadlines are still met, and a line says so.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace tithe {

class SpinGuard {
 public:
  static constexpr int kMost = 1000;
  static constexpr std::chrono::milliseconds kPause{1};

  void moved() { turns_ = 0; }
  // After a turn in which the wait ended before its time and nothing moved.
  void woken_for_nothing() {
    if (++turns_ <= kMost) return;
    turns_ = kMost;
    paused_.store(true, std::memory_order_relaxed);
    std::this_thread::sleep_for(kPause);
  }
  // Once; from any thread.
  std::vector<std::string> said() {
    if (!paused_.load(std::memory_order_relaxed) || said_.exchange(true)) return {};
    return {
        "the transport was woken again and again with nothing to do, and now pauses 1 ms between two looks: "
        "an "
        "event source of this process does not fall silent (please report it)"};
  }

 private:
  int turns_ = 0;
  std::atomic<bool> paused_{false}, said_{false};
};

}  // namespace tithe
