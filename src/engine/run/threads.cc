// SPDX-License-Identifier: Apache-2.0
// The threads that sleep, and the functions that wake them. All state in these conditions changes under mutex_. Hold
// sends the notifications right after it has unlocked.
//
//   compute lane    sleeps on work_ until a step is ready or the runner stops. hand_over() wakes one lane for each
//                   step, but at most the sleeping ones, and none for steps that the communication lane runs itself.
//                   stop() wakes all
//   caller          sleeps on news_ until its job is done, or the round is agreed and all peers have this rank's done
//                   message, or the session is over; ~Runner sleeps until the shutdown is over. done() wakes it for a
//                   job with waiting callers; finish_round() and take_farewell() for a round; complete_control(),
//                   send_pending() and lose() for a done message that was sent or cannot be sent; turn() when sending
//                   has taken too long; shut_down() at the end of the session. With `interrupted` it also wakes
//                   periodically
//   communication   sleeps in poll() until an operation completes, wake() is called or its timeout is over. wake_poll()
//   lane            wakes it, from hand_over (sends, receives, cards), end_work (done messages), fail (farewells) and
//                   run_some (the last step of a session that shuts down). stop() calls wake() itself
//
// Without lanes, one caller at a time does the lanes' work (drive). The others sleep on news_, and a caller that
// leaves wakes them.
//
// No wake_poll is lost. turn() checks all queues and sets polling_ under one lock of mutex_. Work that was added before
// is seen by the check. For work that is added later, wake() also ends a poll that has not begun yet
// (Transport::wake). One wake suffices for a poll: the first wake_poll clears polling_, and its thread calls wake() as
// soon as it unlocks. A thread that comes in between finds polling_ cleared and relies on that call. A late wake()
// ends the next poll; the lane checks the queues and polls again. Work that the lane adds while it completes
// operations (answers, notes) is seen in its next turn.
//
// No notification is lost: a thread checks its condition under the lock before it sleeps, and every change of the
// condition is followed by a notification. Threads check again whenever they wake, so a superfluous notification
// costs only time.
#include <fmt/format.h>

#include <algorithm>

#include "engine/run/operations.h"
#include "engine/run/runner.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kIdle = std::chrono::hours(1);
constexpr milliseconds kInterrupts{100};  // the period of calls of `interrupted`

}  // namespace

// ---- The lock

void Runner::Hold::unlock() {
  const Wakeups calls = std::exchange(runner_.wakeups_, {});
  lock_.unlock();
  if (calls.news) runner_.news_.notify_all();
  if (calls.poll) runner_.transport_->wake();
  for (std::size_t n = calls.lanes; n > 0; --n) runner_.work_.notify_one();
  if (calls.ends) runner_.report_ends();
  if (calls.due > 0) runner_.proxy_trigger_.due(calls.due - 1);
}

void Runner::Hold::sleep(std::condition_variable& until, bool asks) {
  const Wakeups& due = runner_.wakeups_;
  if (due.news || due.poll || due.ends || due.due > 0 || due.lanes > 0) {
    unlock();
    take();
  } else if (asks) {
    until.wait_for(lock_, kInterrupts);  // by the system's clock: the transport's may be virtual
  } else {
    until.wait(lock_);
  }
}

// ---- The ends of tickets

void Runner::end_ticket(Job& job) {
  const std::uint64_t ticket = std::exchange(job.ticket, 0);
  if (ticket == 0 || !ended_) return;
  ends_.push({ticket, shutdown_.verdict()});
  wakeups_.ends = true;
}

// Ends of tickets are reported without the lock, in order: only the thread that removes an entry reports it.
void Runner::report_ends() {
  std::unique_lock lock(mutex_);
  while (!ends_.empty()) {
    const End end = ends_.pop();
    lock.unlock();
    ended_(end.ticket, end.how);
    lock.lock();
  }
}

// ---- Callers that wait

// Calls the caller's `interrupted` without the lock, because the call may take a lock of the caller (Python's GIL).
bool Runner::interrupted(Hold& hold) {
  if (!limits_.interrupted) return false;
  hold.unlock();
  const bool yes = limits_.interrupted();
  hold.take();
  return yes;
}

template <typename Next>
void Runner::guarded(Hold& hold, Next next) {
  try {
    if (starved_)
      fail({Finding::kAccused,
            {Code::kIo, fmt::format("rank {} has no memory for the work of its lanes", member_.me),
             member_.me}});
    starved_ = false;
    next();
  } catch (const std::bad_alloc&) {
    hold.take();
    starved_ = shutdown_.open();
    wake_poll();
    hold.unlock();
    std::this_thread::sleep_for(milliseconds(1));  // memory may become free for the shutdown
    hold.take();
  }
}

// Without lanes: runs `work` as the only active caller. The others sleep until this caller has finished.
template <typename Work>
void Runner::drive(Hold& hold, Work work) {
  driven_ = true;
  guarded(hold, work);
  driven_ = false;
}

// Sleeps until over() is true. Without lanes the thread does the lanes' work itself, unless another caller does.
// Every kInterrupts it leaves the loop to call `interrupted`.
void Runner::block(Hold& hold, const std::function<bool()>& over) {
  const std::int64_t begin = now_ns();
  Instant ask = instant() + kInterrupts;
  ++callers_;
  while (!over()) {
    if (limits_.interrupted && instant() >= ask) {
      ask = instant() + kInterrupts;
      if (interrupted(hold)) withdraw();
      continue;
    }
    if (lanes_ > 0 || driven_) {
      hold.sleep(news_, limits_.interrupted != nullptr);
      continue;
    }
    drive(hold, [&] {
      while ((!limits_.interrupted || instant() < ask) && run_some(hold, 0)) post(hold);
      if (!over()) turn(hold, limits_.interrupted ? nanoseconds(kInterrupts) : kIdle);
    });
  }
  if (--callers_ > 0 && lanes_ == 0) wake_callers();
  recorder_.stats().wait_ns += static_cast<std::uint64_t>(now_ns() - begin);
}

Status Runner::wait(Job& job) {
  Hold hold(*this);
  const std::int64_t begin = trace_ns();
  ++job.awaited;
  block(hold, [&] { return shutdown_.over() || (shutdown_.open() && job.state == Job::State::kDone); });
  --job.awaited;
  recorder_.call("wait", rounds_.round(), begin, trace_ns());
  return shutdown_.verdict();
}

Result<bool> Runner::poll(const Job& job) {
  Hold hold(*this);
  if (lanes_ == 0 && !driven_ && job.state != Job::State::kDone && !shutdown_.over()) {
    drive(hold, [&] {
      while (run_some(hold, 0)) post(hold);
      turn(hold, nanoseconds(0));
      while (run_some(hold, 0)) post(hold);
    });
    if (callers_ > 0) wake_callers();
  }
  if (shutdown_.over()) return shutdown_.verdict();
  return shutdown_.open() && job.state == Job::State::kDone;
}

// Ends the round on this rank and waits for all others: first until the round is agreed, then until every peer has
// this rank's done message.
Result<bool> Runner::agree(std::uint64_t away_ns) {
  Hold hold(*this);
  away_ns_ = away_ns;
  const std::int64_t begin = trace_ns();
  const std::uint64_t before = rounds_.ended();
  rounds_.close();
  hand_over_entry({.ended = rounds_.ended(),
                   .place = order_.next_place(rounds_.ended()),
                   .is_end = true,
                   .round = rounds_.round(),
                   .job = of_job_},
                  false);
  end_work();
  block(hold, [&] { return shutdown_.over() || rounds_.agreed(); });
  recorder_.call("wait", rounds_.round(), begin,
                 rounds_.ended() > before ? std::max(begin, in_ns(rounds_.since())) : trace_ns());
  // Peers need this rank's done message, and after this call the process may exit at any moment. Liveness does not
  // watch the peers of an agreed round, so a peer that accepts nothing is given the same timeout here.
  Instant ask = instant() + kInterrupts;
  ++callers_;
  while (shutdown_.open() && done_messages_pending() && instant() < send_deadline()) {
    if (limits_.interrupted && instant() >= ask) {
      ask = instant() + kInterrupts;
      if (interrupted(hold)) withdraw();
    } else if (lanes_ == 0 && !driven_) {
      drive(hold, [&] { turn(hold, kInterrupts); });
    } else {
      hold.sleep(news_, limits_.interrupted != nullptr);
    }
  }
  if (--callers_ > 0 && lanes_ == 0) wake_callers();
  rounds_.stop_waiting();
  if (!rounds_.agreed()) return shutdown_.verdict();
  return rounds_.agreed_finite();
}

// Without lanes this thread completes the shutdown, unless another caller waits and does so.
void Runner::cancel() {
  Hold hold(*this);
  withdraw();
  if (lanes_ > 0 || callers_ > 0) return;
  ++callers_;
  while (shutdown_.in_progress()) {
    if (driven_)
      hold.sleep(news_);
    else
      drive(hold, [&] { turn(hold, milliseconds(10)); });
  }
  --callers_;
  wake_callers();
}

void Runner::give_up(const Status& why) {
  Hold hold(*this);
  if (shutdown_.open()) fail({Finding::kAccused, {why.code(), why.what(), member_.me}});
  block(hold, [&] { return shutdown_.over(); });
}

Status Runner::status() const {
  const std::lock_guard lock(mutex_);
  return shutdown_.verdict();
}

Status Runner::present() const {
  const std::lock_guard lock(mutex_);
  TITHE_TRY(shutdown_.verdict());
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r].gone && !peers_[r].leaving)
      return {Code::kPeerLost, peers_[r].why_gone.what(), static_cast<Rank>(r)};
  return {};
}

std::vector<Rank> Runner::missed() const {
  const std::lock_guard lock(mutex_);
  const Status verdict = shutdown_.verdict();
  std::vector<Rank> out;
  for (Rank r = 0; r < member_.world; ++r)
    if (r != member_.me &&
        (peers_[static_cast<std::size_t>(r)].gone || verdict.peer() == r || shutdown_.silent(r)))
      out.push_back(r);
  return out;
}

// ---- Lanes

// Runs the next step, or several light ones, on one lane. All steps that become ready are handed over together.
// Returns false if there was no step.
bool Runner::run_some(Hold& hold, int lane) {
  if (!shutdown_.open()) return false;
  std::vector<Task>& taken = taken_[static_cast<std::size_t>(lane)];
  const std::span<const Task> tasks(taken.data(), queue_.take(taken, std::max(1, lanes_)));
  if (tasks.empty()) return false;
  const std::uint32_t round = rounds_.round();
  ++running_;
  hold.unlock();
  Status status;
  try {
    status = run(tasks, lane, round);
  } catch (...) {
    hold.take();
    --running_;
    throw;
  }
  hold.take();
  --running_;
  if (!shutdown_.open()) {
    wake_poll();
  } else if (!status.ok()) {
    fail({Finding::kAccused, status});
  } else {
    queue_.at(trace_ns());
    for (const Task& task : tasks) finish(task);
    hand_over(true);
  }
  return true;
}

Status Runner::run(std::span<const Task> tasks, int lane, std::uint32_t round) {
  std::int64_t begin = now_ns();
  for (const Task& task : tasks) {
    try {
      TITHE_TRY(task.job->unit->run(task.what(), lane));
    } catch (const std::bad_alloc&) {
      const auto largest = std::ranges::max_element(task.job->unit->tensors(), {}, &TensorLayout::n);
      return {Code::kIo,
              fmt::format("rank {} has no memory to work on a bucket of {} tensors, the largest is '{}' with "
                          "{} values (docs/reference/resources.md, 'Memory')",
                          member_.me, task.job->unit->tensors().size(), largest->key, largest->n),
              member_.me};
    }
    const std::int64_t end = now_ns();
    recorder_.note(task, round, lane + 1, begin, end);
    begin = end;
  }
  return {};
}

void Runner::compute(int lane) {
  Hold hold(*this);
  while (!stop_) {
    bool ran = false;
    guarded(hold, [&] { ran = run_some(hold, lane); });
    if (ran || stop_) continue;
    ++idle_;
    hold.sleep(work_);
    --idle_;
  }
}

void Runner::communicate() {
  Hold hold(*this);
  while (!stop_) guarded(hold, [&] { turn(hold, kIdle); });
}

}  // namespace tithe::engine
