// SPDX-License-Identifier: Apache-2.0
#pragma once
// The runner runs the programs of many units at once: a communication lane talks to the transport, compute
// lanes run the steps between. Without lanes, whoever waits does both.
//
//   free      a step runs as soon as the steps it waits for have run; units do not wait for each other
//   ordered   sends to one peer on one channel leave in the order of the graph, whatever finishes first
//   asleep    a lane without work sleeps
//   alive     the communication lane answers other ranks' asks, whatever the application does
//   agreed    no rank commits a round that another one reports as failed (agree)
//   named     the first trouble ends the session: what is in flight is cancelled, and before anybody hears of it
//             the ranks tell each other whom they blame, so that all survivors name the same rank
//
// Threads  one communication lane (alone with the transport) and the compute lanes; callers in start, wait, agree.
// Locks    mutex_ guards everything here. Who takes several takes Session's commit_mutex_, then its mutex_, then this
//          one. It is let go of while a step runs, the transport polls or takes a message, and a caller's own question
//          is asked; the transport has locks of its own, and never calls back.
// Owners   the queue owns the jobs, they own their units and frames; the transport borrows frames until it completes an
//          operation, so it is destroyed before them. Each part below says what it owns.
// Failure  fail() is the only way in. It drops what has not begun; what runs ends by itself, and its outcome is not
//          looked at. Then the communication lane parts (parting.h), and all callers get the verdict.
//
// The parts: Queue what there is to do, Rounds where rounds begin and end, Liveness who is alive, Parting the end,
// Recorder numbers. The runner is the scheduler: it alone has threads, the lock and the transport. runner.cc is steps
// and messages, hearing.cc what the control channel brings.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/liveness.h"
#include "engine/parting.h"
#include "engine/recorder.h"

namespace tithe::engine {

class Runner {
 public:
  Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, Patience limits);
  ~Runner();

  // A layout that is new to this rank; card.number is filled in.
  Job& add(std::unique_ptr<Unit> unit, Card card);
  // Begins a round of an idle job.
  Status start(Job& job, std::span<const Tensor> bucket, std::uint32_t round);
  // Blocks until the job is done. The Status of the session where it failed.
  Status wait(Job& job);
  // Blocks until every rank has ended its work for the open round. Ok: all ranks commit it, and so must the caller,
  // even where the session fails meanwhile. All jobs of the round have been waited for.
  Status agree();
  Status status() const;  // ok while the session lives
  void cancel();

  SessionStats stats() const;
  void end_round(bool dropped);
  void trace(bool on);
  std::vector<TraceEvent> take_trace();

 private:
  using Lock = std::unique_lock<std::mutex>;
  // By the transport's clock, everything: a simulated one passes at once.
  Instant instant() const { return transport_->now(); }
  std::int64_t now_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(instant().time_since_epoch()).count();
  }
  Peer& at(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  Voice voice() const { return {member_.me, member_.world, member_.tags.get()}; }
  bool watching() const { return parting_.open() && liveness_.needed(); }

  // All below hold mutex_; those that are given the lock let go of it on the way.
  void show_card(Job& job);
  void release(Job& job);
  void finish(const Task& task);
  void hand_over();                                           // wakes whoever has work now
  void nudge();                                               // the communication lane has news
  void block(Lock& lock, const std::function<bool()>& over);  // a caller waits
  bool interrupted(Lock& lock);
  bool run_one(Lock& lock, int lane);
  void compute(int lane);
  void communicate();
  void turn(Lock& lock, std::chrono::nanoseconds wait);
  void post(Lock& lock);
  void complete(const Completion& done);
  void fail(const Trouble& trouble);
  void withdraw();
  bool part();  // true: the session is over

  // hearing.cc
  void listen(Rank peer);
  void complete_control(const Completion& done);
  void take(Rank peer, Control& control);
  void take_done(Rank peer, std::uint64_t ended);
  void take_card(Rank peer, Card& card);
  void take_report(Rank peer, const Control& control);
  void take_farewell(Rank peer, const Farewell& farewell);
  void settle_round();      // it is agreed, if all ranks have ended it
  bool owes_notes() const;  // the end of a round, to somebody
  void send_notes(Lock& lock);

  const Member member_;
  const int lanes_;
  const Patience limits_;

  mutable std::mutex mutex_;
  std::condition_variable work_, news_;
  std::vector<Peer> peers_;  // by rank
  Queue queue_;
  Rounds rounds_;
  Parting parting_;
  std::unique_ptr<Transport>
      transport_;  // after what lends it memory: it goes first, and with it all use of that
  Liveness liveness_;
  Recorder recorder_;
  std::vector<Completion> completions_;  // of a poll
  int running_ = 0;                      // compute steps
  bool polling_ = false;                 // and nobody has woken the poll yet
  bool notes_ = false;                   // some peer is to be told something
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tithe::engine
