// SPDX-License-Identifier: Apache-2.0
#include "profile_probes.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include "rank_processes.h"

namespace tithe::cli {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
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
    late += seconds_since(due) / kNaps;
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

double flood(Transport& transport, std::span<const Rank> to, std::span<const Rank> from, ByteView message,
             std::size_t messages, bool in_step) {
  constexpr std::size_t kFirst = 2;
  const std::size_t under_way = in_step ? 1 : 2;
  const std::size_t each = kFirst + messages;
  const std::size_t all = each * from.size(), first = kFirst * from.size();
  std::vector<std::uint8_t> in(under_way * from.size() * message.size());
  std::vector<std::size_t> posted(from.size()), given(to.size()), came(from.size()), left(to.size());
  std::size_t received = 0, sent = 0;
  Clock::time_point begin = Clock::now();
  double rate = 0;
  while (received < all || sent < each * to.size()) {
    const auto over = [&](const std::vector<std::size_t>& counts, std::size_t k) {
      return in_step ? std::min(came[k], left[k]) : counts[k];
    };
    for (std::size_t k = 0; k < from.size(); ++k)
      for (; posted[k] < std::min(each, over(came, k) + under_way); ++posted[k]) {
        const std::size_t at = (k * under_way + posted[k] % under_way) * message.size();
        if (!transport.recv(from[k], kProbe, Bytes(in).subspan(at, message.size()), 2 * k).ok()) return 0;
      }
    for (std::size_t k = 0; k < to.size(); ++k)
      for (; given[k] < std::min(each, over(left, k) + under_way); ++given[k])
        if (!transport.send(to[k], kProbe, message, 2 * k + 1).ok()) return 0;
    Completion done[16];
    const std::size_t n = transport.poll(done, std::chrono::milliseconds(100));
    for (std::size_t k = 0; k < n; ++k) {
      if (!done[k].status.ok()) return 0;
      const std::size_t which = done[k].op / 2;
      ++(done[k].op % 2 == 0 ? came[which] : left[which]);
      ++(done[k].op % 2 == 0 ? received : sent);
      if (done[k].op % 2 == 0 && received == first) begin = Clock::now();
    }
    if (received == all && rate == 0)
      rate = static_cast<double>((all - first) * message.size()) / seconds_since(begin);
    if (seconds_since(begin) > kPatience) return 0;
  }
  return rate;
}

}  // namespace tithe::cli
