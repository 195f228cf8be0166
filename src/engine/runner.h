// SPDX-License-Identifier: Apache-2.0
#pragma once
// The runner runs the programs of many units at once: a communication lane talks to the transport, compute
// lanes run the steps between. Without lanes, whoever waits does both.
//
//   free      a step runs as soon as the steps it waits for have run; units do not wait for each other
//   ordered   sends to one peer on one channel leave in the order of the graph, whatever finishes first
//   asleep    a lane without work sleeps
//   named     the first trouble ends the session: what is in flight is cancelled, and before anybody hears of it
//             the ranks tell each other whom they blame, so that all survivors name the same rank
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/fifo.h"
#include "engine/control.h"
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
  std::vector<int> waits;               // by step
  std::vector<std::int64_t> posted_ns;  // by step: in flight since; 0 otherwise
  std::size_t left = 0;                 // steps that have not finished
  Arena card_frame;
  std::size_t card_bytes = 0;
};

class Runner {
 public:
  Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes,
         std::chrono::nanoseconds timeout);
  ~Runner();

  Transport& transport() { return *transport_; }

  // A layout that is new to this rank; card.number is filled in.
  Job& add(std::unique_ptr<Unit> unit, Card card);
  // Begins a round of an idle job.
  Status start(Job& job, std::span<const Tensor> bucket, std::uint32_t round);
  // Blocks until the job is done. The Status of the session where it failed.
  Status wait(Job& job);
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
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  // All below hold mutex_, except where they say that they let go of it.
  void release(Job& job);
  void enqueue(Job& job, int step);
  void release_next(Job& job, const Step& step);
  void finish(Job& job, const Step& step);
  void fail(Status why);
  void heard(Rank peer, const Farewell& farewell);
  void complete(const Completion& done);
  void complete_control(const Completion& done);
  std::vector<Rank> awaited() const;
  void check_timeout();
  void part();
  bool parted();
  Status verdict() const;         // ok until the session is over
  Status verdict_of_all() const;  // as far as farewells have come in
  void note(const Job& job, const Step& step, int lane, std::int64_t begin, std::int64_t end);

  void listen(Rank peer);
  void post(Lock& lock);                                 // lets go of it
  void turn(Lock& lock, std::chrono::nanoseconds wait);  // lets go of it
  bool run_one(Lock& lock, int lane);                    // lets go of it
  void communicate();
  void compute(int lane);
  void nudge();  // the communication lane has news

  const Member member_;
  const int lanes_;
  const std::chrono::nanoseconds timeout_;

  mutable std::mutex mutex_;
  std::condition_variable work_, news_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::unique_ptr<Transport>
      transport_;  // after the jobs: it goes first, and with it all use of their memory
  Fifo<Task> ready_, post_;
  Fifo<Job*> cards_to_send_;
  std::size_t capacity_ = 0;
  int running_ = 0;            // compute steps
  std::size_t in_flight_ = 0;  // sends and receives of steps
  int active_ = 0;             // jobs that are neither idle nor done
  bool polling_ = false;
  bool stop_ = false;
  Clock::time_point last_progress_;
  std::vector<Completion> completions_;

  // Control channel, by rank.
  Voice voice() const { return {member_.me, member_.world, member_.tags.get()}; }
  std::vector<Numbers> numbers_;
  std::vector<Arena> inbox_;
  std::vector<std::vector<Card>> cards_;
  std::vector<char> gone_;
  std::vector<char> has_farewell_;
  std::vector<Farewell> farewells_;
  Rank put_off_ = Status::kNoPeer;  // said farewell in a round that this rank has not reached
  Arena farewell_frame_;
  std::size_t farewell_sends_ = 0;

  Life life_ = Life::kOpen;
  Status why_;               // as this rank saw it
  Status verdict_;           // as all survivors agree
  std::uint32_t round_ = 0;  // the last one that began
  bool round_open_ = false;  // and was not committed
  Clock::time_point parting_since_;
  bool parting_begun_ = false;

  SessionStats stats_;
  bool tracing_ = false;
  Fifo<TraceEvent> events_;
  std::vector<std::thread> threads_;
};

}  // namespace tithe::engine
