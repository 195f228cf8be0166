// SPDX-License-Identifier: Apache-2.0
// A verb may fork while the progress thread runs, so that thread allocates no memory and takes only its own lock.
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "interrupt.h"

namespace tithe::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 2s;
constexpr auto kStep = 200ms;

std::atomic<const char*> unit_now = nullptr;
std::atomic<std::uint64_t> done_now = 0, total_now = 0;
std::atomic<bool> shown = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // read by a signal handler

}  // namespace

void progress(const char* unit, std::uint64_t done, std::uint64_t total) {
  done_now = done;
  total_now = total;
  unit_now = unit;
}

void clear_progress() {
  constexpr char kErase[] = "\r\x1b[K";
  if (shown.exchange(false)) static_cast<void>(!write(STDERR_FILENO, kErase, sizeof kErase - 1));
}

ProgressLine::ProgressLine(std::string doing) : doing_(std::move(doing)) {
  if (isatty(STDERR_FILENO) != 0) thread_ = std::thread([this] { show(); });
}

ProgressLine::~ProgressLine() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  clear_progress();
}

void ProgressLine::show() {
  const HeldInterrupts by_the_main_thread;  // the main thread alone removes incomplete files
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kStep, [this] { return over_; })) {
    const auto took = std::chrono::steady_clock::now() - begin;
    if (took < kPatience) continue;
    char line[160];
    const auto seconds =
        static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(took).count());
    const char* unit = unit_now;
    const int n = unit == nullptr
                      ? std::snprintf(line, sizeof line, "\r\x1b[K%s: %lld s", doing_.c_str(), seconds)
                      : std::snprintf(line, sizeof line, "\r\x1b[K%s: %llu of %llu %s, %lld s",
                                      doing_.c_str(), static_cast<unsigned long long>(done_now.load()),
                                      static_cast<unsigned long long>(total_now.load()), unit, seconds);
    shown = true;
    if (n > 0)
      static_cast<void>(
          !write(STDERR_FILENO, line, std::min<std::size_t>(static_cast<std::size_t>(n), sizeof line - 1)));
  }
}

}  // namespace tithe::cli
