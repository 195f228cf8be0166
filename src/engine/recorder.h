// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a session has done, in numbers and, while it is traced, event by event. Plain data, under the runner's mutex.
#include "base/fifo.h"
#include "engine/queue.h"

namespace tithe::engine {

class Recorder {
 public:
  SessionStats& stats() { return stats_; }
  const SessionStats& stats() const { return stats_; }
  void trace(bool on);  // keeps the last 65,536 events
  std::vector<TraceEvent> take_trace();

  // Of a step on compute lane `lane`, counted from 1, or of a message (lane 0).
  void note(const Task& task, std::uint32_t round, int lane, std::int64_t begin, std::int64_t end);

 private:
  SessionStats stats_;
  bool tracing_ = false;
  Fifo<TraceEvent> events_;
};

}  // namespace tithe::engine
