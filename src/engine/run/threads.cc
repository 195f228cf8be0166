// SPDX-License-Identifier: Apache-2.0
// The threads that sleep, and who wakes them. All that these conditions read changes under mutex_; the calls themselves
// are made by Hold, right after the lock was let go of.
//
//   compute lane    on work_, until a step is ready or the runner stops. hand_over() wakes one for each step, but no
//                   more than sleep, and none for what the communication lane runs itself; ~Runner all
//   caller          on news_, until its job is done, or the round is agreed and the others are told so, or the session
//                   is over; ~Runner until nobody parts. done() wakes it for a job that somebody waits for,
//                   finish_round() and take_farewell() for a round, complete_control(), send_notes() and lose() for a
//                   word that has gone out or never will, turn() once that has taken too long, part() for the end of
//                   the session. It needs no clock of its own; with `interrupted` it also wakes by itself
//   communication   in poll(), until something completes, wake() is called or its clock is over. Givers of work call
//   lane            nudge(): hand_over (sends, receives, cards), end_work (done), fail (farewells), run_some
//                   (the last step of a session that parts); ~Runner calls wake() itself
//
// Without lanes the callers do the work, one at a time: the others sleep on news_, and who leaves wakes them (drive).
//
// A nudge is never lost: turn() looks at all queues and sets polling_ without letting go of mutex_ between. Before
// that, added work is seen by the look; after it, wake() ends also a poll that has not begun yet (Transport::wake).
// One wake is enough for a poll, so the first nudge takes polling_ back, and its thread wakes the poll as
// soon as it unlocks. A thread that comes between finds polling_ taken back, and may rely on that. A wake that comes
// late ends the poll after the one that it was for; the lane looks at the queues and polls again. Work that the lane
// gives to itself while it completes operations (answers, notes) is seen in its next turn.
//
// A call is never lost either: a sleeper has looked, under the lock, and whoever changes what it looked at calls after
// the change. Sleepers look again whenever they wake, so a call too many costs only time.
#include <fmt/format.h>

#include <algorithm>

#include "engine/run/operations.h"
#include "engine/run/runner.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kIdle = std::chrono::hours(1);
constexpr milliseconds kInterrupts{100};  // how often a caller that waits is asked

}  // namespace

// ---- The lock

void Runner::Hold::unlock() {
  const Wakeups calls = std::exchange(runner_.wakeups_, {});
  lock_.unlock();
  if (calls.news) runner_.news_.notify_all();
  if (calls.poll) runner_.transport_->wake();
  for (std::size_t n = calls.lanes; n > 0; --n) runner_.work_.notify_one();
  if (calls.ends) runner_.tell_ends();
  if (calls.due > 0) runner_.proxy_trigger_.due(calls.due - 1);
}

void Runner::Hold::sleep(std::condition_variable& until, bool asks) {
  const Wakeups& due = runner_.wakeups_;
  if (due.news || due.poll || due.ends || due.due > 0 || due.lanes > 0) {
    unlock();
    take();
  } else if (asks) {
    until.wait_for(lock_, kInterrupts);  // by this thread's clock: the transport's may be another one
  } else {
    until.wait(lock_);
  }
}

// ---- The ends of tickets

void Runner::end_ticket(Job& job) {
  const std::uint64_t ticket = std::exchange(job.untold, 0);
  if (ticket == 0 || !ended_) return;
  ends_.push({ticket, shutdown_.verdict()});
  wakeups_.ends = true;
}

void Runner::tell_ends() {
  std::unique_lock lock(mutex_);
  while (!ends_.empty()) {
    const End end = ends_.pop();
    lock.unlock();
    ended_(end.ticket, end.how);
    lock.lock();
  }
}

// ---- Callers that wait

// Asks the caller's own question, without the lock: it may need a lock of the caller's (Python's).
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
            {Code::kIo, fmt::format("rank {} has no memory for what its lanes do", member_.me), member_.me}});
    starved_ = false;
    next();
  } catch (const std::bad_alloc&) {
    hold.take();
    starved_ = shutdown_.open();
    nudge();
    hold.unlock();
    std::this_thread::sleep_for(milliseconds(1));  // there may be some again, for its end
    hold.take();
  }
}

// The others sleep meanwhile; one of them goes on when this one needs nothing more.
template <typename Work>
void Runner::drive(Hold& hold, Work work) {
  driven_ = true;
  guarded(hold, work);
  driven_ = false;
}

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
  if (--callers_ > 0 && lanes_ == 0) tell_callers();
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
    if (callers_ > 0) tell_callers();
  }
  if (shutdown_.over()) return shutdown_.verdict();
  return shutdown_.open() && job.state == Job::State::kDone;
}

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
  // The others need this rank's word, and after this the caller's process may end at any moment. Nobody looks at a peer
  // of an agreed round, so one that takes nothing is waited for as long as its silence would be.
  Instant ask = instant() + kInterrupts;
  ++callers_;
  while (shutdown_.open() && notes_pending() && instant() < told_by()) {
    if (limits_.interrupted && instant() >= ask) {
      ask = instant() + kInterrupts;
      if (interrupted(hold)) withdraw();
    } else if (lanes_ == 0 && !driven_) {
      drive(hold, [&] { turn(hold, kInterrupts); });
    } else {
      hold.sleep(news_, limits_.interrupted != nullptr);
    }
  }
  if (--callers_ > 0 && lanes_ == 0) tell_callers();
  rounds_.stop_waiting();
  if (!rounds_.agreed()) return shutdown_.verdict();
  return rounds_.agreed_finite();
}

// Without lanes nobody else would tell the others, unless another thread waits here already and does.
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
  tell_callers();
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
    if (peers_[r].gone && !peers_[r].leaves)
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

// Runs what is next: one step, or several that weigh little. All that they make ready is handed over in one go.
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
    nudge();
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
      return {
          Code::kIo,
          fmt::format("rank {} has no memory to work on a bucket of {} tensors, of which '{}' is the largest "
                      "with {} values (docs/reference/resources.md, 'Memory')",
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
