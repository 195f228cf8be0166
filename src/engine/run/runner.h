// SPDX-License-Identifier: Apache-2.0
#pragma once
// The runner runs the programs of many units at once: a communication lane talks to the transport, compute
// lanes run the steps between, but for those that weigh little. Without lanes, whoever waits does both.
//
//   free      a step runs as soon as the steps it waits for have run; units do not wait for each other
//   ordered   sends to one peer on one channel leave in the order of the graph, whatever finishes first
//   asleep    a lane without work sleeps
//   alive     the communication lane answers other ranks' asks, whatever the application does
//   agreed    no rank commits a round that another one reports as failed (agree)
//   named     the first trouble ends the session: what is in flight is cancelled, and before anybody hears of it
//             the ranks tell each other whom they blame, so that all survivors name the same rank
//   batched   the lock is taken once for several steps that weigh little, for all messages that are ready, and for all
//             that a poll completes; the communication lane is woken once for all that a batch has made ready
//
// Threads  one communication lane (alone with the transport) and the compute lanes; callers in start, wait, poll,
//          agree.
// Locks    mutex_ guards everything here but the recorder's sums and events, which belong to the lanes. A thread that
//          takes several takes Session's commit_mutex_, then its mutex_, then this one. It is unlocked while steps
//          run, the transport polls or takes messages, a caller's own question is asked, and somebody is woken; the
//          transport has locks of its own, and never calls back.
// Owners   the queue owns the jobs, they own their units and frames; the transport borrows frames until it completes an
//          operation, so it is destroyed before them. Each part below says what it owns.
// Failure  fail() is the only way in. It drops what has not begun; what runs ends by itself, and its outcome is not
//          looked at. Then the communication lane runs the shutdown (shutdown.h), and all callers get the verdict.
//
// The parts: Queue has the steps, SendWindow orders sends, Rounds counts rounds, Liveness detects lost ranks, Shutdown
// ends the session, Reconfiguration changes the plan, Recorder has sums and events. The runner schedules: only it
// has threads, the lock and the transport. runner.cc has jobs and failures, threads.cc lanes and waiting callers,
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

// A session's work for choices that are proposed, without the runner's mutex: on a thread of its own, or without lanes
// on the caller's.
struct PlanBuilder {
  std::function<Answer(std::uint32_t number, const std::string& text)> build;
  std::function<void(std::uint32_t number)> discard;
};

// When the straggler proxy begins a round for this rank's program (session/straggler_proxy.h).
struct ProxyTrigger {
  int others_at_least = 0;  // other ranks that must have begun the round; 0: no proxy
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

  // A layout that is new to this rank; card.number is filled in.
  Job& add(std::unique_ptr<Unit> unit, Card card);
  // Its card is shown at once, and not only when its first round begins.
  void show(Job& job);
  // A layout that is gone: its last round is committed, and all ranks forget it after the same round. Its unit is the
  // caller's to destroy.
  std::unique_ptr<Unit> forget(Job& job);
  // Begins a round of an idle job.
  Status start(Job& job, std::span<const Tensor> bucket, std::uint32_t round, std::uint64_t ticket);
  // Blocks until the job is done. The Status of the session where it failed.
  Status wait(Job& job);
  // True where it is done. Does not block; without lanes it does what can be done at once.
  Result<bool> poll(const Job& job);
  // No further job of the open round starts. Blocks until all that have are done, and every rank has ended its work for
  // the round, and the transport has this rank's word of it. Ok: all ranks commit it, and so must the caller, even
  // where the session fails meanwhile; false: some rank met a value that is not finite, and all drop the round.
  // away_ns: Done::away_ns.
  Result<bool> agree(std::uint64_t away_ns = 0);
  // By rank, of the round that was agreed last; false where some rank's word of it is not known any more.
  bool away(std::span<std::uint64_t> out) const;
  Status status() const;   // ok while the session lives
  Status present() const;  // and no peer has gone without a word
  std::vector<Rank> missed() const;
  void cancel();
  // Ends the session, because this rank's own device failed: all ranks name this rank and `why`. Blocks until all ranks
  // have heard, as wait() does.
  void give_up(const Status& why);

  // Rank 0: other choices, from the round on before which so many have ended; 0: as soon as all are ready.
  Status propose(std::string text, std::uint64_t after);
  Reconfiguration::News proposed() const;
  // Work that no step waits for, without the lock; without lanes it is done before this returns.
  void run_in_background(std::function<void()> work);

  std::vector<std::string> messages() { return transport_->messages(); }
  SessionStats stats() const;
  // began_ns: its commit. True: what was proposed counts from the next round on.
  bool end_round(bool dropped, std::int64_t began_ns);
  // The round that ended last is not committed any more.
  void take_back(bool dropped);
  // The number of the job that began with this session's first round, as rank 0 has drawn it; 0: no round has begun.
  std::uint64_t job() const;
  // Announcement::job from now on. restored: the next round does not follow from the rounds so far.
  void be_of_job(std::uint64_t job, bool restored);
  Recorder& recorder() { return recorder_; }
  void mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns);
  // By the transport's clock.
  std::int64_t now_ns() const { return in_ns(instant()); }

 private:
  // Threads to wake after the lock is released: a thread that wakes earlier would wait for the lock.
  struct Wakeups {
    bool news = false;      // callers that wait
    bool ends = false;      // the caller is told of ends of tickets
    bool poll = false;      // the communication lane
    std::uint64_t due = 0;  // the proxy is to run: 1 + the rounds that have ended
    std::size_t lanes = 0;  // compute lanes
  };
  // mutex_, held from the beginning; makes the calls that are due whenever it lets go.
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
    // Until somebody calls; it may return before. asks: for so long as a caller's own question may wait.
    void sleep(std::condition_variable& until, bool asks = false);

   private:
    Runner& runner_;
    std::unique_lock<std::mutex> lock_;
  };
  static constexpr std::size_t kMostPosts =
      64;  // that are handed to the transport before the lane looks around
  // A message on its way to the transport.
  struct Posted {
    Task task;
    std::size_t bytes = 0;
    Status status = {};
  };
  // By the transport's clock, everything: a simulated one passes at once.
  Instant instant() const { return transport_->now(); }
  // The time of a moment that the trace alone asks for.
  std::int64_t trace_ns() const { return recorder_.on() ? now_ns() : 0; }
  Peer& at(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  ControlIdentity identity() const { return {member_.me, member_.world, member_.tags.get()}; }
  bool watching() const { return shutdown_.open() && liveness_.needed(); }

  // All below hold mutex_; those that are given the hold let go of it on the way.
  void write_card_of(Job& job);
  void match_cards();  // of layouts that are not agreed on, in order
  void hand_over_entry(const Announcement& entry, bool in_card);  // this rank's next one of the round
  void release(Job& job);
  void finish(const Task& task);
  void done(Job& job);
  void hand_over(bool runs_on = false);  // whoever has work now is to be woken
  void nudge();                          // the communication lane has news
  void tell_callers() { wakeups_.news = true; }
  void end_ticket(Job& job);
  void tell_ends();  // without the lock
  template <typename Work>
  void drive(Hold& hold, Work work);  // without lanes, by a caller while no other one does
  void block(Hold& hold, const std::function<bool()>& over);  // a caller waits
  bool interrupted(Hold& hold);
  bool run_some(Hold& hold, int lane);
  bool runs_itself() const;  // the communication lane, what is ready now
  Status run(std::span<const Task> tasks, int lane, std::uint32_t round);  // without the lock
  void compute(int lane);
  void communicate();
  // Does what a lane does next. Where there is no memory for it, the session ends and the process does not.
  template <typename Next>
  void guarded(Hold& hold, Next next);
  void stop();
  void fail(const Trouble& trouble);
  void withdraw();
  bool part();  // true: the session is over

  // message_io.cc
  std::size_t show_card(Job& job);  // to so many peers
  void post(Hold& hold);
  bool has_mail() const { return queue_.has_mail() || send_window_.has_next(); }
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
  void end_work();             // of a round that closes, if all its jobs are done
  void finish_round();         // it is agreed, if all ranks have ended it
  bool notes_pending() const;  // the end of a round, to somebody
  Instant told_by() const { return rounds_.since() + limits_.timeout; }  // else they are not waited for
  void lose(Peer& peer, Status why);                                     // nothing more comes from it
  void send_notes(Hold& hold);
  std::optional<Instant> proxy_due_at();  // when the proxy is to run for this rank's program

  // plan_change.cc
  void build(Hold& hold);  // what was proposed
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
  std::unique_ptr<Transport>
      transport_;  // after what lends it memory: it goes first, and with it all use of that
  Liveness liveness_;
  Recorder recorder_;
  std::vector<Completion> completions_;   // of a poll
  std::vector<Posted> posted_;            // a batch
  std::vector<std::vector<Task>> taken_;  // by compute lane: the steps that it runs
  Wakeups wakeups_;
  int running_ = 0;           // lanes that run steps
  int idle_ = 0;              // compute lanes that sleep
  int callers_ = 0;           // that wait
  bool driven_ = false;       // without lanes: a caller does their work
  bool polling_ = false;      // and nobody has woken the poll yet
  bool notes_ = false;        // some peer is to be told something
  std::size_t shown_ = 0;     // cards that the transport has
  std::size_t matched_ = 0;   // layouts that all ranks agree on: the first ones
  std::uint64_t job_ = 0;     // as rank 0 has drawn it
  std::uint64_t of_job_ = 0;  // Announcement::job
  bool stop_ = false;
  bool starved_ = false;  // there was no memory for something, and nobody has been told yet
  struct End {
    std::uint64_t ticket = 0;
    Status how = {};
  };
  const PlanBuilder builder_;
  const Ended ended_;
  Fifo<End> ends_;  // that nobody was told yet
  const ProxyTrigger proxy_trigger_;
  std::uint64_t away_ns_ = 0;          // of this rank, as it says in its next done
  std::uint64_t due_ = 0;              // 1 + the rounds that had ended when the proxy was last called
  Instant free_since_ = {};            // the end of its last round
  std::optional<Instant> late_since_;  // enough others have begun a round that it has not
  BackgroundTasks background_;
  std::vector<std::thread> threads_;
};

}  // namespace tithe::engine
