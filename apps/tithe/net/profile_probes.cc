// SPDX-License-Identifier: Apache-2.0
#include "profile_probes.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include "base/usable_cores.h"
#include "local_ranks.h"

namespace tithe::cli {

using Clock = std::chrono::steady_clock;

double seconds_to_wake() {
  constexpr int kTurns = 400;
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;
  std::thread other([&] {
    std::unique_lock lock(mutex);
    for (int k = 0; k < kTurns; ++k) {
      changed.wait(lock, [&] { return turn == 2 * k + 1; });
      ++turn;
      changed.notify_all();
    }
  });
  const double begin = process_seconds();
  {
    std::unique_lock lock(mutex);
    for (int k = 0; k < kTurns; ++k) {
      ++turn;
      changed.notify_all();
      changed.wait(lock, [&] { return turn == 2 * k + 2; });
    }
  }
  other.join();
  return (process_seconds() - begin) / (2 * kTurns);
}

double seconds_of_slice(int ranks) {
  constexpr auto kNap = std::chrono::milliseconds(1);
  constexpr int kNaps = 100;
  const int cores = usable_cores();
  std::atomic<bool> stop = false;
  std::vector<std::thread> busy;
  for (int k = 0; k < (cores + ranks - 1) / ranks; ++k)
    busy.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  double late = 0;
  for (int k = 0; k < kNaps; ++k) {
    const Clock::time_point due = Clock::now() + kNap;
    std::this_thread::sleep_until(due);
    late += std::chrono::duration<double>(Clock::now() - due).count() / kNaps;
  }
  stop = true;
  for (std::thread& t : busy) t.join();
  return 2 * late;
}

double seconds_of_tick() {
  timespec step{};
  clock_getres(CLOCK_MONOTONIC_COARSE, &step);
  return static_cast<double>(step.tv_sec) + 1e-9 * static_cast<double>(step.tv_nsec);
}

}  // namespace tithe::cli
