// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Recorder keeps what a session has done, in numbers and, while it is traced, event by event. Each lane writes for
// itself and waits for no other; the reader adds up and sorts.
//
//   bounded   the last 65,536 events are kept; for a file the first ones, until some lane has 262,144. How many more
//             there were is counted
//   whole     for a file: where a round's commit is kept, all of its events are
//   steady    room is made when tracing begins, and no event allocates
//   free      where nothing is traced, an event costs one branch
//
// Threads  note() on the lane's own thread, call() on any; all else on any. stats() is under the runner's mutex.
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
  explicit Recorder(int lanes);  // for computing; lane 0 is for messages

  SessionStats& stats() { return stats_; }  // but for the times that lanes add up
  SessionStats total() const;

  bool on() const {
    return ring_on_.load(std::memory_order_relaxed) || kept_on_.load(std::memory_order_relaxed);
  }
  void trace(bool on);  // keeps the last 65,536 events
  std::vector<TraceEvent> take_trace();

  // For a file: keeps the first events, from the beginning of the session on. Before the first event.
  void keep();
  struct Recording {
    std::vector<TraceEvent> events;
    std::uint64_t lost = 0;
  };
  Recording kept() const;  // so far, sorted by their end

  // The names of a job's events.
  Labels labels(const Unit& unit);
  // A text that lives as long as this.
  std::string_view name(std::string_view text);

  // A step has run on lane `lane`, counted from 1; or a message has come or gone (lane 0).
  void note(const Task& task, std::uint32_t round, int lane, std::int64_t begin, std::int64_t end);
  // The last step of a job has run.
  void bucket(const Job& job, std::uint32_t round, std::int64_t begin, std::int64_t end);
  // An event: a caller's call. `op` lives as long as this.
  void call(std::string_view op, std::uint32_t round, std::int64_t begin, std::int64_t end);

 private:
  struct alignas(64) Lane {
    std::atomic<std::uint64_t> encode_ns{0}, merge_ns{0}, send_ns{0};
    mutable std::mutex mutex;      // of all below
    std::vector<TraceEvent> ring;  // the last ones; once it is full, the oldest is at `oldest`
    std::size_t oldest = 0;
    std::vector<TraceEvent> first;  // the first ones, for a file
    std::uint64_t pushed_out = 0, not_kept = 0;
  };
  void write(Lane& lane, const TraceEvent& event);

  SessionStats stats_;
  std::atomic<bool> ring_on_{false}, kept_on_{false};
  std::atomic<bool> full_{false};             // nothing more is kept for a file
  std::atomic<std::uint64_t> cut_{0};         // events that take_trace() left out
  std::vector<std::unique_ptr<Lane>> lanes_;  // the last one is for callers
  std::mutex names_mutex_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace tithe::engine
