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
// Threads  one communication lane (the only user of the transport), the compute lanes, and callers in start(),
//          wait(), poll() and agree().
// Locks    mutex_ guards all members except the recorder's sums and events, which belong to the lanes. The lock order
//          is Session's commit_mutex_, Session's mutex_, this mutex_. The runner unlocks it while steps run, while
//          the transport polls or accepts messages, while it calls `interrupted`, and before it wakes a thread. The
//          transport has its own locks and never calls back.
// Owners   the queue owns the jobs; a job owns its unit and frames. The transport borrows frames until it completes
//          an operation, so it is destroyed before the jobs.
// Failure  fail() is the only entry. It drops all steps that have not begun. Running steps end, and their results are
//          ignored. Then the communication lane runs the shutdown (shutdown.h), and all callers get its verdict.
//
// The parts: Queue has the steps, SendWindow orders sends, Rounds counts rounds, Liveness detects lost ranks,
// Shutdown ends the session, Reconfiguration changes the plan, Recorder has sums and events. Only the runner has
// threads, the lock and the transport. runner.cc has jobs and failures, threads.cc lanes and waiting callers,
// message_io.cc the communication lane, control_messages.cc the control channel, plan_change.cc new plans.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/peers/reconfiguration.h"
#include "engine/run/background_tasks.h"
#include "engine/run/liveness.h"
#include "engine/run/recorder.h"
#include "engine/run/send_window.h"
#include "engine/run/shutdown.h"

namespace tithe::engine {

// The session's callbacks for proposed choices. They run without the runner's mutex: on a background thread, or on
// the caller's thread if there are no lanes.
struct PlanBuilder {
  std::function<Answer(std::uint32_t number, const std::string& text)> build;
  std::function<void(std::uint32_t number)> discard;
};

// When the straggler proxy begins a round for this rank's program (session/straggler_proxy.h).
struct ProxyTrigger {
  int others_at_least = 0;  // other ranks that have begun the round; 0: no proxy
  double share = 0;         // a rank is late if it exceeds their time by this share
  // Called without the mutex, on a lane of this session, once per round, with the number of ended rounds.
  std::function<void(std::uint64_t ended)> due = {};
  bool on() const { return others_at_least > 0; }
};

// Called without the mutex, once for every ticket (SessionOptions::ended).
using Ended = std::function<void(std::uint64_t ticket, const Status& how)>;

class Runner {
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
  // Blocks until the job is done. Returns the session's failure if there is one.
  Status wait(Job& job);
  // Returns true if the job is done. Does not block. Without lanes, runs all steps that are ready.
  Result<bool> poll(const Job& job);
  // Ends the open round: no further job of it starts. Blocks until all started jobs are done, every rank has ended
  // its work for the round, and the transport has sent this rank's done messages. If the result is ok, all ranks
  // commit the round, and the caller must commit it too, even if the session fails meanwhile. False: a value on some
  // rank was not finite, and all ranks drop the round. away_ns: Done::away_ns.
  Result<bool> agree(std::uint64_t away_ns = 0);
  // Fills in Done::away_ns of each rank for the last agreed round. Returns false if a later done message has replaced
  // one of them.
  bool away(std::span<std::uint64_t> out) const;
  Status status() const;   // ok until the session ends
  Status present() const;  // also fails if a peer is gone without a farewell
  std::vector<Rank> missed() const;
  void cancel();
  // Ends the session because this rank's own device failed: all ranks name this rank and `why`. Blocks until the
  // shutdown is over, as wait() does.
  void give_up(const Status& why);

  // On rank 0: proposes other choices. They apply after `after` rounds have ended, or with 0 as soon as all ranks are
  // ready.
  Status propose(std::string text, std::uint64_t after);
  Reconfiguration::News proposed() const;
  // Runs work that no step waits for, without the lock. Without lanes the work is done before this call returns.
  void run_in_background(std::function<void()> work);

  std::vector<std::string> messages() { return transport_->messages(); }
  SessionStats stats() const;
  // Commits the round. began_ns: the start of the commit. Returns true if proposed choices apply from the next round
  // on.
  bool end_round(bool dropped, std::int64_t began_ns);
  // Undoes the commit of the last round.
  void take_back(bool dropped);
  // The job number that rank 0 drew in this session's first round; 0: no round has begun.
  std::uint64_t job() const;
  // Sets Announcement::job. restored: the next round does not continue the previous rounds.
  void be_of_job(std::uint64_t job, bool restored);
  Recorder& recorder() { return recorder_; }
  void mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns);
  // The transport's clock.
  std::int64_t now_ns() const { return in_ns(instant()); }

 private:
  // Threads to wake after the lock is released: a thread that wakes earlier would wait for the lock.
  struct Wakeups {
    bool news = false;      // waiting callers
    bool ends = false;      // the thread that reports ended tickets to the caller
    bool poll = false;      // the communication lane
    std::uint64_t due = 0;  // 1 + the number of ended rounds if the proxy must run
    std::size_t lanes = 0;  // compute lanes
  };
  // Holds mutex_ from construction. Each unlock executes the pending wake-ups.
  class Hold {
   public:
    explicit Hold(Runner& runner) : runner_(runner), lock_(runner.mutex_) {}
    ~Hold() {
      if (lock_.owns_lock()) unlock();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    void unlock();
    void take() {
      if (!lock_.owns_lock()) lock_.lock();
    }
    // Sleeps until `until` is notified, or less. asks: wakes in time for the next call of `interrupted`.
    void sleep(std::condition_variable& until, bool asks = false);

   private:
    Runner& runner_;
    std::unique_lock<std::mutex> lock_;
  };
  static constexpr std::size_t kMostPosts = 64;  // messages per batch
  // A message of a batch.
  struct Posted {
    Task task;
    std::size_t bytes = 0;
    Status status = {};
  };
  // All times use the transport's clock, which is virtual in a simulation.
  Instant instant() const { return transport_->now(); }
  // The time for a trace event; 0 without tracing.
  std::int64_t trace_ns() const { return recorder_.on() ? now_ns() : 0; }
  Peer& at(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  ControlIdentity identity() const { return {member_.me, member_.world, member_.tags.get()}; }
  bool watching() const { return shutdown_.open() && liveness_.waits(); }

  // All functions below require mutex_. Functions that take the hold unlock it in between.
  void write_card_of(Job& job);
  void match_cards();                                             // of layouts that are not agreed, in order
  void hand_over_entry(const Announcement& entry, bool in_card);  // this rank's next entry
  void release(Job& job);
  void finish(const Task& task);
  void done(Job& job);
  void hand_over(bool runs_on = false);  // wakes threads for the ready steps
  void wake_poll();                      // wakes the communication lane
  void wake_callers() { wakeups_.news = true; }
  void end_ticket(Job& job);
  void report_ends();  // called without the lock
  template <typename Work>
  void drive(Hold& hold, Work work);                          // one caller at a time does the lanes' work
  void block(Hold& hold, const std::function<bool()>& over);  // the caller waits until over()
  bool interrupted(Hold& hold);
  bool run_some(Hold& hold, int lane);
  bool runs_itself() const;  // true: the communication lane runs the ready steps
  Status run(std::span<const Task> tasks, int lane, std::uint32_t round);  // called without the lock
  void compute(int lane);
  void communicate();
  // Runs `next`. If memory runs out, the session fails and the process continues.
  template <typename Next>
  void guarded(Hold& hold, Next next);
  void stop();
  void fail(const Trouble& trouble);
  void withdraw();
  bool shut_down();  // true: the session is over

  // message_io.cc
  std::size_t show_card(Job& job);  // returns the number of peers
  void post(Hold& hold);
  bool has_ready() const { return queue_.has_mail() || send_window_.has_next(); }
  void post_batch(Hold& hold);
  Task task_of(OpId op) const;
  SendWindow::Send paced(const Task& task) const;
  void turn(Hold& hold, std::chrono::nanoseconds wait);
  void complete(const Completion& done, Instant now);

  // control_messages.cc
  void listen(Rank peer);
  void complete_control(const Completion& done);
  void take(Rank peer, Control& control);
  void take_done(Rank peer, const Done& done);
  void take_card(Rank peer, Card& card);
  void take_announcement(Rank peer, const Announcement& announcement);
  void take_report(Rank peer, const Control& control);
  void take_farewell(Rank peer, const Farewell& farewell);
  void take_echo(Rank peer, const Echo& echo);
  void learn_of_commit(const FailureReport& t);
  Report report_to(Rank peer, std::uint32_t number);
  void end_work();                     // ends the work of a closing round if its jobs are done
  void finish_round();                 // agrees the round if all ranks have ended it
  bool done_messages_pending() const;  // some peer lacks this rank's done message
  Instant send_deadline() const { return rounds_.since() + limits_.timeout; }  // the wait for peers ends then
  void lose(Peer& peer, Status why);  // the transport can receive no more from the peer
  void send_pending(Hold& hold);
  std::optional<Instant> proxy_due_at();  // the time at which the proxy must run

  // plan_change.cc
  void build(Hold& hold);  // starts the pending builds of proposals
  void build_now(const Reconfiguration::Work& work);
  void take_proposal(Rank peer, Control& control);

  const Member member_;
  const int lanes_;
  const WaitLimits limits_;

  mutable std::mutex mutex_;
  std::condition_variable work_, news_;
  std::vector<Peer> peers_;  // by rank
  Queue queue_;
  SendWindow send_window_;
  Rounds rounds_;
  BucketOrder order_;
  Shutdown shutdown_;
  Reconfiguration reconfiguration_;
  std::unique_ptr<Transport> transport_;  // declared after its borrowed memory, so destroyed before it
  Liveness liveness_;
  Recorder recorder_;
  std::vector<Completion> completions_;   // of a poll
  std::vector<Posted> posted_;            // the messages of one batch
  std::vector<std::vector<Task>> taken_;  // by compute lane: its current steps
  Wakeups wakeups_;
  int running_ = 0;           // lanes that run steps now
  int idle_ = 0;              // sleeping compute lanes
  int callers_ = 0;           // waiting callers
  bool driven_ = false;       // without lanes: a caller does the lanes' work
  bool polling_ = false;      // the poll has not been woken yet
  bool pending_ = false;      // send_pending() may have work
  std::size_t shown_ = 0;     // cards in flight
  std::size_t matched_ = 0;   // layouts whose cards were compared: a prefix
  std::uint64_t job_ = 0;     // drawn by rank 0
  std::uint64_t of_job_ = 0;  // Announcement::job
  bool stop_ = false;
  bool starved_ = false;  // an allocation failed, and fail() was not called yet
  struct End {
    std::uint64_t ticket = 0;
    Status how = {};
  };
  const PlanBuilder builder_;
  const Ended ended_;
  Fifo<End> ends_;  // tickets that ended and were not reported
  const ProxyTrigger proxy_trigger_;
  std::uint64_t away_ns_ = 0;  // for this rank's next done message
  std::uint64_t due_ = 0;      // 1 + the ended rounds at the last call of the proxy
  Instant free_since_ = {};    // the end of the last round
  // Since then, enough others have begun a round that this rank has not.
  std::optional<Instant> late_since_;
  BackgroundTasks background_;
  std::vector<std::thread> threads_;
};

}  // namespace tithe::engine
