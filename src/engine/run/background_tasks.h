// SPDX-License-Identifier: Apache-2.0
#pragma once
// Work that no step waits for, one after the other, on a thread that lives while there is any and makes way for all
// others. Calls come from any thread, but not from the work itself.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tithe::engine {

class Aside {
 public:
  Aside() = default;
  ~Aside() { stop(); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // False where the system gives no thread: then nothing was taken.
  bool add(std::function<void()>& work);
  // Drops what has not begun, and waits for what has.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::deque<std::function<void()>> work_;
  bool running_ = false;
  std::thread thread_;
};

}  // namespace tithe::engine
