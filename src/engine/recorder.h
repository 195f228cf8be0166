// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a session has done, in numbers and, while it is traced, event by event. Each lane writes for itself and waits
// for no other; who reads adds up and sorts.
//
// Threads  note() on the lane's own thread; all else on any. stats() is under the runner's mutex.
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fifo.h"
#include "engine/queue.h"

namespace tithe::engine {

class Recorder {
 public:
  explicit Recorder(int lanes);  // for computing; lane 0 is the communication lane

  SessionStats& stats() { return stats_; }  // but for the times that lanes add up
  SessionStats total() const;
  void trace(bool on);  // keeps the last 65,536 events
  std::vector<TraceEvent> take_trace();

  // A step has run on lane `lane`, counted from 1; or a message has come or gone (lane 0).
  void note(const Task& task, std::uint32_t round, int lane, std::int64_t begin, std::int64_t end);

 private:
  struct alignas(64) Lane {
    std::atomic<std::uint64_t> encode_ns{0}, merge_ns{0}, send_ns{0};
    std::mutex mutex;  // of events
    Fifo<TraceEvent> events;
  };
  SessionStats stats_;
  std::atomic<bool> tracing_{false};
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace tithe::engine
