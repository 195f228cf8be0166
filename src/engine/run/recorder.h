// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Recorder keeps the statistics of a session and, while tracing is on, its events. Each lane writes to its own
// buffers and never waits for another lane; the reader adds and sorts.
//
//   bounded   a trace keeps the last 65,536 events. A recording for a file keeps the first events, until one lane has
//             262,144. Further events are counted
//   whole     in a recording for a file, if the commit of a round is kept, all events of the round are kept
//   steady    memory is reserved when tracing begins, and no event allocates
//   free      without tracing, an event costs one branch
//
// Threads  note() on the lane's own thread, all other functions on any thread. stats() needs the runner's mutex.
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/run/queue.h"
#include "tithe/trace.h"

namespace tithe::engine {

class Recorder {
 public:
  explicit Recorder(int lanes);  // compute lanes; lane 0 is the communication lane

  SessionStats& stats() { return stats_; }  // without the times that the lanes add up
  SessionStats total() const;

  bool on() const {
    return ring_on_.load(std::memory_order_relaxed) || kept_on_.load(std::memory_order_relaxed);
  }
  void trace(bool on);  // keeps the last 65,536 events
  std::vector<TraceEvent> take_trace();

  // Starts a recording for a file, which keeps the first events. Call it before the first event.
  void keep();
  struct Recording {
    std::vector<TraceEvent> events;
    std::uint64_t lost = 0;
  };
  Recording kept() const;  // so far, sorted by end time

  // Makes the names of a job's events.
  Labels labels(const Unit& unit);
  // Returns a copy of the text that lives as long as the recorder.
  std::string_view name(std::string_view text);

  // Records a step on lane `lane`, counted from 1, or a message that was sent or received (lane 0).
  void note(const Task& task, std::uint32_t round, int lane, std::int64_t begin, std::int64_t end);
  // Records the end of a job's last step.
  void bucket(const Job& job, std::uint32_t round, std::int64_t begin, std::int64_t end);
  // Records a caller's call. `op` must live as long as the recorder.
  void call(std::string_view op, std::uint32_t round, std::int64_t begin, std::int64_t end);

 private:
  struct alignas(64) Lane {
    std::atomic<std::uint64_t> encode_ns{0}, merge_ns{0}, send_ns{0};
    mutable std::mutex mutex;      // guards all members below
    std::vector<TraceEvent> ring;  // the last events; when full, `oldest` is the index of the oldest
    std::size_t oldest = 0;
    std::vector<TraceEvent> first;  // the first events, for a file
    std::uint64_t pushed_out = 0, not_kept = 0;
  };
  void write(Lane& lane, const TraceEvent& event);

  SessionStats stats_;
  std::atomic<bool> ring_on_{false}, kept_on_{false};
  std::atomic<bool> full_{false};             // the recording for a file has ended
  std::atomic<std::uint64_t> cut_{0};         // events that take_trace() dropped
  std::vector<std::unique_ptr<Lane>> lanes_;  // the last one is for callers
  std::mutex names_mutex_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace tithe::engine
