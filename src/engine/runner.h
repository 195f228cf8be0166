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
// Threads: one communication lane (alone with the transport) and the compute lanes; callers in start, wait, agree.
// Lock: mutex_ guards everything; it is let go of while a step runs, while the transport polls and while it sends.
// Owners: the jobs own their units and frames; the transport borrows frames until it completes an operation, so it
// is destroyed before the jobs.
// Failure: fail() is the only way in. kOpen -> kParting (nothing new starts; testimonies travel) -> kOver (verdict).
// Files: runner.cc the scheduler, watching.cc who is alive, parting.cc the end, verdict.cc who is to blame.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/fifo.h"
#include "engine/peer.h"
#include "engine/unit.h"

namespace tithe::engine {

// A unit's round in flight.
struct Job {
  enum class State : std::uint8_t { kIdle, kAwaitsCards, kRuns, kDone };
  std::unique_ptr<Unit> unit;
  Card card;
  State state = State::kIdle;
  std::uint32_t number = 0;
  bool agreed = false;
  Instant began;
  std::vector<int> waits;               // by step
  std::vector<std::int64_t> posted_ns;  // by step: in flight since; 0 otherwise
  std::size_t left = 0;                 // steps that have not finished
  Arena card_frame;
  std::size_t card_bytes = 0;
};

// SessionOptions, as far as they concern the runner.
struct Patience {
  std::chrono::nanoseconds timeout;
  std::chrono::nanoseconds patience;
  std::function<bool()> interrupted;
};

class Runner {
 public:
  Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, Patience limits);
  ~Runner();

  Transport& transport() { return *transport_; }

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
  enum class Life : std::uint8_t { kOpen, kParting, kOver };
  struct Task {
    Job* job = nullptr;
    int step = 0;
  };
  // What this rank waits for from another one, and since when.
  struct Awaited {
    bool owed = false;   // it has to send something
    bool says = false;   // and that on the control channel
    bool takes = false;  // something is on its way to it
    Instant since = {};
  };
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  // By the transport's clock, everything: a simulated one passes at once.
  Instant instant() const { return transport_->now(); }
  std::int64_t now_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(instant().time_since_epoch()).count();
  }

  // All below hold mutex_, except where they say that they let go of it.
  void release(Job& job);
  void enqueue(Job& job, int step);
  void release_next(Job& job, const Step& step);
  void finish(Job& job, const Step& step);
  void complete(const Completion& done);
  void note(const Job& job, const Step& step, int lane, std::int64_t begin, std::int64_t end);
  Peer& at(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  const Peer& at(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }

  void block(Lock& lock, const std::function<bool()>& over);  // a caller waits; lets go of it
  bool interrupted(Lock& lock);                               // lets go of it
  void post(Lock& lock);                                      // lets go of it
  void turn(Lock& lock, std::chrono::nanoseconds wait);       // lets go of it
  bool run_one(Lock& lock, int lane);                         // lets go of it
  void communicate();
  void compute(int lane);
  void nudge();  // the communication lane has news

  // watching.cc
  void listen(Rank peer);
  void complete_control(const Completion& done);
  void take(Rank peer, Control& control);
  void take_card(Rank peer, Card& card);
  void take_report(Rank peer, const Control& control);
  bool watching() const { return life_ == Life::kOpen && (active_ > 0 || (agreeing_ && !agreed_)); }
  void begin_watch();
  void settle();  // the round is agreed, if all ranks have ended it
  void hear(Peer& peer, Instant now, bool gained);
  void count_bytes(Instant now);
  void await(std::vector<Awaited>& all) const;
  Report report_to(Rank peer, std::uint32_t number);
  Instant watch(Instant now);  // asks, and fails where it must; when to look again
  bool look_at(Rank peer, const Awaited& a, Instant now);
  void blame_idle(std::chrono::nanoseconds waited);
  bool owes_notes() const;          // the end of a round, to somebody
  void flush_outboxes(Lock& lock);  // lets go of it

  // parting.cc
  void fail(Finding finding, const Status& why, Rank witness);
  void fail(Finding finding, const Status& why) { fail(finding, why, member_.me); }
  void heard_farewell(Rank peer, const Farewell& farewell);
  void withdraw();
  std::uint32_t uncommitted() const { return round_open_ || !began_ ? round_ : round_ + 1; }
  std::vector<Rank> unheard() const;
  void part();
  bool parted();
  Status verdict() const { return life_ == Life::kOver || withdrawn_ ? verdict_ : Status{}; }

  const Member member_;
  const int lanes_;
  const Patience limits_;

  mutable std::mutex mutex_;
  std::condition_variable work_, news_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<Peer> peers_;  // by rank
  std::unique_ptr<Transport>
      transport_;  // after the jobs and peers: it goes first, and with it all use of their memory
  Fifo<Task> ready_, post_;
  Fifo<Job*> cards_to_send_;
  std::size_t capacity_ = 0;
  int running_ = 0;  // compute steps
  int active_ = 0;   // jobs that are neither idle nor done
  bool polling_ = false;
  bool stop_ = false;
  std::vector<Completion> completions_;

  Voice voice() const { return {member_.me, member_.world, member_.tags.get()}; }

  // Watching.
  std::vector<Awaited> awaited_;  // reused
  Instant floor_ = {};            // no clock counts from before: this rank waited for nobody
  Instant looked_ = {}, look_at_ = {};
  Instant arrived_ = {};     // when bytes of steps last came, from anybody
  bool post_notes_ = false;  // some outbox has something to send

  // The end of a round.
  std::uint32_t round_ = 0;  // the last one that began
  bool began_ = false;       // some round has begun
  bool round_open_ = false;  // and was not committed
  bool agreeing_ = false;    // its work is complete here
  bool agreed_ = false;      // ... and at all others, or some rank has committed it
  Instant agreeing_since_ = {};
  std::uint64_t done_ = 0;  // rounds whose work this rank has ended

  // The end of the session.
  Life life_ = Life::kOpen;
  Testimonies said_;  // by rank
  Status verdict_;    // as all survivors agree
  Arena farewell_frames_;
  std::size_t farewell_sends_ = 0;
  Instant parting_since_ = {};
  bool parting_begun_ = false;
  bool withdrawn_ = false;  // by this rank's own caller

  SessionStats stats_;
  bool tracing_ = false;
  Fifo<TraceEvent> events_;
  std::vector<std::thread> threads_;
};

}  // namespace tithe::engine
