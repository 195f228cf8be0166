// SPDX-License-Identifier: Apache-2.0
#pragma once
// The runner executes the programs of many units at once. One communication lane uses the transport, and compute
// lanes run all other steps; the communication lane also runs light steps (Queue::light). Without lanes, the calling
// threads do both.
//
//   free      a step runs when the steps that it waits for have run; units do not wait for each other
//   ordered   sends to one peer on one channel leave in the order of the graph, whichever step finishes first
//   asleep    a lane without work sleeps
//   alive     the communication lane answers liveness questions of other ranks while the application computes
//   agreed    no rank commits a round that another rank reports as failed (agree)
//   named     the first failure ends the session. Operations in flight are cancelled. Ranks exchange failure reports
//             before any caller gets a result, so that all survivors name the same rank
//   batched   one lock acquisition covers several light steps, all ready messages, or all completions of a poll; a
//             batch wakes the communication lane once
//
// The runner connects the threads, the lock and the parts. The parts share a RunnerState, and none refers to the
// runner: MessageIo has the messages of steps, ControlChannel the messages between engines, LayoutAgreement compares
// layouts, and FailureDetector finds lost peers. runner.cc has jobs and the turn of the communication lane.
//
// Threads  one communication lane (the only user of the transport), the compute lanes, and callers in start(),
//          wait(), poll() and agree(): threads.cc
// Locks    RunnerLock guards all members except the recorder's sums and events, which belong to the lanes. The lock
//          order is Session's commit_mutex_, Session's mutex_, this lock. The runner unlocks it while steps run,
//          while the transport polls or accepts messages, while it calls `interrupted`, and before it wakes a thread.
//          The transport has its own locks and never calls back.
// Failure  FailureDetector::fail() is the only entry. Then the communication lane runs the shutdown (shutdown.h), and
//          all callers get its verdict.
#include <functional>
#include <thread>

#include "engine/run/background_tasks.h"
#include "engine/run/control_channel.h"
#include "engine/run/message_io.h"

namespace tithe::engine {

// The session's callbacks for proposed choices. They run without the runner's mutex: on a background thread, or on
// the caller's thread if there are no lanes.
struct PlanBuilder {
  std::function<Answer(std::uint32_t number, const std::string& text)> build;
  std::function<void(std::uint32_t number)> discard;
};

class Runner {
  using Hold = RunnerLock::Hold;
  template <typename Read>
  auto read(Read value) const {
    const std::lock_guard lock(state_.lock.mutex());
    return value();
  }

 public:
  Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, WaitLimits limits,
         const Pacing& pacing, PlanBuilder builder, Ended ended = {}, ProxyTrigger proxy_trigger = {});
  ~Runner();

  // Adds a new layout. Fills in card.number.
  Job& add(std::unique_ptr<Unit> unit, Card card);
  // Sends the layout's card now. Without this call the first round of the layout sends it.
  void show(Job& job);
  // Removes a layout. Its last round is committed, and all ranks remove it after the same round. The caller destroys
  // the unit.
  std::unique_ptr<Unit> forget(Job& job);
  // Begins a round of an idle job.
  Status start(Job& job, std::span<const Tensor> bucket, std::uint32_t round, std::uint64_t ticket);
  // Blocks until the job is done. Returns the session's failure if there is one. by_program, here and in agree(): the
  // program waits, and not a straggler proxy, so the time counts in SessionStats::wait_ns.
  Status wait(Job& job, bool by_program);
  // Returns true if the job is done. Does not block. Without lanes, runs all steps that are ready.
  Result<bool> poll(const Job& job);
  // Ends the open round: no further job of it starts. Blocks until all started jobs are done, every rank has ended
  // its work for the round, and the transport has sent this rank's done messages. If the result is ok, all ranks
  // commit the round, and the caller must commit it too, even if the session fails meanwhile. False: a value on some
  // rank was not finite, and all ranks drop the round. away_ns: Done::away_ns.
  Result<bool> agree(std::uint64_t away_ns, bool by_program);
  // Fills in Done::away_ns of each rank for the last agreed round. Returns false if a later done message has replaced
  // one of them.
  bool away(std::span<std::uint64_t> out) const {
    return read([&] { return state_.rounds.away(out); });
  }
  // ok until the session ends
  Status status() const {
    return read([&] { return state_.shutdown.verdict(); });
  }
  // also fails if a peer is gone without a farewell
  Status present() const {
    return read([&] { return failures_.present(); });
  }
  std::vector<Rank> missed() const {
    return read([&] { return failures_.missed(); });
  }
  void cancel();
  // Ends the session because this rank's own device failed: all ranks name this rank and `why`. Blocks until the
  // shutdown is over, as wait() does.
  void give_up(const Status& why);

  // On rank 0: proposes other choices. They apply after `after` rounds have ended, or with 0 as soon as all ranks are
  // ready.
  Status propose(std::string text, std::uint64_t after);
  Reconfiguration::News proposed() const {
    return read([&] { return state_.reconfiguration.news(); });
  }
  // Runs work that no step waits for, without the lock. Without lanes the work is done before this call returns.
  void run_in_background(std::function<void()> work) {
    if (lanes_ == 0 || !background_.add(work)) work();
  }

  std::vector<std::string> messages() { return state_.transport->messages(); }
  SessionStats stats() const {
    return read([&] { return state_.recorder.total(); });
  }
  // Commits the round. began_ns: the start of the commit. Returns true if proposed choices apply from the next round
  // on.
  bool end_round(bool dropped, std::int64_t began_ns);
  // Undoes the commit of the last round.
  void take_back(bool dropped);
  // The job number that rank 0 drew in this session's first round; 0: no round has begun.
  std::uint64_t job() const {
    return read([&] { return agreement_.job(); });
  }
  // Sets Announcement::job. restored: the next round does not continue the previous rounds.
  void be_of_job(std::uint64_t job, bool restored);
  Recorder& recorder() { return state_.recorder; }
  void mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns);
  // The transport's clock.
  std::int64_t now_ns() const { return in_ns(state_.now()); }

 private:
  // All functions below require the mutex, except run(), build_now(), stop() and the bodies of threads. Functions that
  // take the hold unlock it in between.
  void add_entry(const Announcement& entry, bool in_card);  // this rank's next entry of the bucket order
  void release(Job& job);
  void finish(const Task& task);
  void done(Job& job);
  void end_work();                       // ends the work of a closing round if its jobs are done
  void hand_over(bool runs_on = false);  // wakes threads for the ready steps
  bool has_messages() { return !state_.queue.cards().empty() || io_.has_ready(); }
  // The communication lane runs the ready steps.
  bool runs_itself() const { return lanes_ > 0 && state_.queue.light(); }
  bool run_some(Hold& hold, int lane);
  Status run(std::span<const Task> tasks, int lane, std::uint32_t round);
  void post(Hold& hold);
  void build(Hold& hold);  // starts the pending builds of proposals
  void build_now(const Reconfiguration::Work& work);
  void turn(Hold& hold, std::chrono::nanoseconds wait);
  void complete(const Completion& done, Instant now);
  bool shut_down();  // true: the session is over

  // threads.cc
  template <typename Work>
  void drive(Hold& hold, Work work);  // one caller at a time does the lanes' work
  // The caller waits until over().
  std::uint64_t block(Hold& hold, const std::function<bool()>& over, std::chrono::nanoseconds longest);
  // Runs `next`. If memory runs out, the session fails and the process continues.
  template <typename Next>
  void guarded(Hold& hold, Next next);
  void compute(int lane);
  void communicate();
  void stop();

  const int lanes_;
  const PlanBuilder builder_;
  RunnerState state_;
  LayoutAgreement agreement_{state_};
  FailureDetector failures_{state_};
  MessageIo io_{state_, failures_};
  ControlChannel control_{state_, failures_, agreement_};

  std::vector<std::vector<Task>> taken_;  // by compute lane: its current steps
  int running_ = 0;                       // lanes that run steps now
  int callers_ = 0;                       // waiting callers
  bool driven_ = false;                   // without lanes: a caller does the lanes' work
  bool stop_ = false;
  bool starved_ = false;  // an allocation failed, and fail() was not called yet
  BackgroundTasks background_;
  std::vector<std::thread> threads_;
};

}  // namespace tithe::engine
