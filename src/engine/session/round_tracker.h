// SPDX-License-Identifier: Apache-2.0
#pragma once
// The RoundTracker owns the numbers of job, rounds and tickets, the state of the current round, and times of rounds.
//
//   counted   round() counts from the first round of the job, so it is equal on all ranks and continues from a saved
//             state; committed() counts the rounds of this session alone
//   undone    at most one round can be undone: the last committed one, until keep_last()
//   outside   away_ns() is the program's own time between two rounds, without its time in the session's calls
//
// Threads  none: under the session's mutex.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "tithe/session.h"

namespace tithe::engine {

class RoundTracker {
 public:
  std::uint64_t job() const { return job_; }      // SavedHead::job; 0: no round is committed
  std::uint64_t round() const { return round_; }  // the open round, or the next one
  std::uint64_t committed() const { return committed_; }
  bool over() const { return committed_ > 0; }  // a round of this session is over
  bool last_dropped() const { return last_dropped_; }
  // A commit of the open round runs, so no bucket can enter the round.
  bool ending() const { return ending_; }
  void set_ending(bool ending) { ending_ = ending; }
  // Converts a round of the job into a number of rounds of this session, and the reverse.
  std::uint64_t in_session(std::uint64_t round) const { return committed_ + (round - round_); }
  std::uint64_t in_job(std::uint64_t rounds) const { return round_ + (rounds - committed_); }
  void set_job(std::uint64_t job) { job_ = job; }
  // The session continues from a state that was saved before this round of this job.
  void restore(std::uint64_t job, std::uint64_t round) {
    job_ = job;
    round_ = round;
  }

  Ticket next_ticket() const { return last_ticket_ + 1; }
  Ticket issue() { return ++last_ticket_; }
  bool issued(Ticket ticket) const { return ticket > 0 && ticket <= last_ticket_; }

  // A bucket enters the open round. gradient_bytes: without side tensors. by_program: the program runs the round, and
  // not a straggler proxy.
  void hand_over(std::int64_t now_ns, bool first, std::uint64_t gradient_bytes, bool by_program) {
    last_handed_ns_ = now_ns;
    if (first) first_handed_ns_ = now_ns;
    const std::int64_t away = left_ns_ == 0 ? 0 : now_ns - left_ns_ - blocked_ns_;
    away_ns_ = static_cast<std::uint64_t>(std::max<std::int64_t>(0, away));
    gradient_bytes_ += gradient_bytes;
    by_program_ = by_program;
  }
  bool by_program() const { return by_program_; }
  // The program waited in the session.
  void add_blocked(std::int64_t ns) { blocked_ns_ += ns; }
  // The program returns from a call that ends a round.
  void leave(std::int64_t now_ns) {
    left_ns_ = now_ns;
    blocked_ns_ = 0;
  }
  std::uint64_t away_ns() const { return away_ns_; }

  // The open round is over. finite=false: it was dropped.
  void commit(bool finite) {
    before_dropped_ = std::exchange(last_dropped_, !finite);
    can_undo_ = true;
    ++round_;
    ++committed_;
  }
  // Counts the times of the round that commit() has ended.
  void add_times(std::int64_t now_ns) {
    exchange_ns_ += static_cast<std::uint64_t>(now_ns - first_handed_ns_);
    exposed_ns_ += static_cast<std::uint64_t>(now_ns - last_handed_ns_);
  }
  bool can_undo() const { return can_undo_; }
  // The last round cannot be undone any more. Returns false if that was so before.
  bool keep_last() { return std::exchange(can_undo_, false); }
  void undo() {  // requires can_undo()
    can_undo_ = false;
    last_dropped_ = before_dropped_;
    --round_;
    ++undone_;
  }

  void report(SessionStats& stats) const {
    stats.gradient_bytes = gradient_bytes_;
    stats.exchange_ns = exchange_ns_;
    stats.exposed_ns = exposed_ns_;
    stats.rounds_undone = undone_;
  }

 private:
  std::uint64_t job_ = 0, round_ = 0, committed_ = 0, undone_ = 0;
  Ticket last_ticket_ = 0;
  bool ending_ = false, by_program_ = true;
  bool last_dropped_ = false, before_dropped_ = false;  // the last committed round; the round before it
  bool can_undo_ = false;
  // The first and the last bucket of the open round; then sums over all rounds.
  std::int64_t first_handed_ns_ = 0, last_handed_ns_ = 0;
  std::uint64_t gradient_bytes_ = 0, exchange_ns_ = 0, exposed_ns_ = 0;
  // The time at which the program left the session, and its waits since then; its time outside in the last round.
  std::int64_t left_ns_ = 0, blocked_ns_ = 0;
  std::uint64_t away_ns_ = 0;
};

}  // namespace tithe::engine
