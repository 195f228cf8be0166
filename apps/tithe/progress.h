// SPDX-License-Identifier: Apache-2.0
#pragma once
// A line on a terminal about what takes longer than two seconds: "tithe replay: 120 of 1000 steps, 7 s". It goes
// away when the verb is done. Where stderr is no terminal there is none.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace tithe::cli {

// From any thread, as often as one likes. `unit` lives for ever.
void progress(const char* unit, std::uint64_t done, std::uint64_t total);

// Takes the line away, from a signal handler too.
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
