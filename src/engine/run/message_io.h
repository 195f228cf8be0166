// SPDX-License-Identifier: Apache-2.0
#pragma once
// The messages of steps: posts sends and receives to the transport, polls it, and handles their completions. With a
// send window, sends leave in its order; receives go to the transport directly.
//
// Threads: only the communication lane (or the waiting caller, without lanes), under the runner's mutex. The mutex is
// released while the transport accepts a batch and while it polls; expect() and has_ready() on any thread.
// Owns the batch and the polled completions. A unit owns the memory of its messages, and lends it to the transport
// until the operation completes.
// Failure: a failed message of a step ends the session; cancel_all() cancels the operations in flight.
#include "engine/run/failure_detector.h"

namespace tithe::engine {

class MessageIo {
 public:
  MessageIo(RunnerState& state, FailureDetector& failures);

  // Reserves memory for the messages of a new layout.
  void expect(const Program& program);
  bool has_ready() const { return !state_.queue.post().empty() || state_.send_window.has_next(); }
  // Posts a batch of messages with one release of the mutex. Steps may become ready.
  void post_batch(RunnerLock::Hold& hold);
  // The result is valid until the next poll. It contains the completions of control messages too.
  std::span<const Completion> poll(RunnerLock::Hold& hold, std::chrono::nanoseconds wait);
  // Handles the completion of a step's message. Returns the step if it has run.
  std::optional<Task> complete(const Completion& done, Instant now);
  void cancel_all();

 private:
  struct Posted {
    Task task;
    Status status = {};
  };
  Task task_of(OpId op) const { return {&state_.queue.job(op >> 32), static_cast<int>(op & 0xffffffffU)}; }
  SendWindow::Send windowed(const Task& task) const;

  RunnerState& state_;
  FailureDetector& failures_;
  std::vector<Posted> posted_;           // one batch
  std::vector<Completion> completions_;  // of a poll
};

}  // namespace tithe::engine
