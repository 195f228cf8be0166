// SPDX-License-Identifier: Apache-2.0
#pragma once
// A progress line on a terminal for work of more than two seconds: "tithe replay: 120 of 1000 steps, 7 s". It is
// erased when the verb ends. There is none if stderr is not a terminal.
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace tithe::cli {

// Thread-safe and cheap. `unit` must be a string literal.
void progress(const char* unit, std::uint64_t done, std::uint64_t total);

// Erases the line; may be called from a signal handler.
void clear_progress();

class ProgressLine {
 public:
  explicit ProgressLine(std::string doing);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void show();
  const std::string doing_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace tithe::cli
