// SPDX-License-Identifier: Apache-2.0
#include "engine/run/background_tasks.h"

#include <sys/resource.h>
#include <unistd.h>

#include <system_error>
#include <utility>

namespace tithe::engine {
namespace {

// Lanes have priority if processors are scarce. SCHED_IDLE is not used: a thread that never runs may hold a lock of
// the memory allocator.
constexpr int kNice = 10;

void make_way() {
#ifdef __linux__
  // A thread id: sets the priority of this thread only.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
#endif
}

}  // namespace

bool BackgroundTasks::add(std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  if (running_) return true;
  if (thread_.joinable()) thread_.join();  // the thread has left run()
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    work = std::move(work_.back());
    work_.pop_back();
    return false;
  }
  running_ = true;
  return true;
}

void BackgroundTasks::run() {
  make_way();
  std::unique_lock lock(mutex_);
  while (!work_.empty()) {
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    work = {};
    lock.lock();
  }
  running_ = false;
}

void BackgroundTasks::stop() {
  std::thread last;
  {
    const std::lock_guard lock(mutex_);
    work_.clear();
    last.swap(thread_);
  }
  if (last.joinable()) last.join();
}

}  // namespace tithe::engine
