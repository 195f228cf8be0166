// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs tasks that no step waits for, one after the other, on a low-priority thread that exists while there are tasks.
// Any thread may call, except a task.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tithe::engine {

class BackgroundTasks {
 public:
  BackgroundTasks() = default;
  ~BackgroundTasks() { stop(); }
  BackgroundTasks(const BackgroundTasks&) = delete;
  BackgroundTasks& operator=(const BackgroundTasks&) = delete;

  // Returns false if the system refuses a thread; `work` is then unchanged.
  bool add(std::function<void()>& work);
  // Drops tasks that have not begun, and waits for the running one.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::deque<std::function<void()>> work_;
  bool running_ = false;
  std::thread thread_;
};

}  // namespace tithe::engine
