// SPDX-License-Identifier: Apache-2.0
// The threads that sleep, and the calls that wake them (runner_lock.h). All state in these conditions changes under
// the mutex.
//
//   compute lane    sleeps until a step is ready or the runner stops. hand_over() wakes one lane for each step, but at
//                   most the sleeping ones, and none for steps that the communication lane runs itself
//   caller          sleeps until its job is done, or the round is agreed and all peers have this rank's done message,
//                   or the session is over. done() wakes it for a job with waiting callers, ControlChannel and
//                   FailureDetector for a round or a done message, turn() when sending has taken too long, and
//                   shut_down() at the end of the session. With `interrupted` it also wakes periodically
//   communication   sleeps in poll() until an operation completes, its timeout is over, or another thread adds work:
//   lane            hand_over (sends, receives, cards), send_soon (control messages), fail (farewells) and run_some
//                   (the last step of a session that shuts down)
//
// Without lanes, one caller at a time does the lanes' work (drive). The others sleep, and a caller that leaves wakes
// them.
#include <fmt/format.h>

#include <algorithm>

#include "engine/run/operations.h"
#include "engine/run/runner.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kIdle = std::chrono::hours(1);

}  // namespace

// ---- The end of all threads

Runner::~Runner() {
  cancel();
  {
    Hold hold(state_.lock);
    while (lanes_ > 0 && state_.shutdown.in_progress()) hold.wait_for_news();
  }
  stop();
  background_.stop();
}

void Runner::stop() {
  {
    const Hold hold(state_.lock);
    stop_ = true;
  }
  state_.lock.wake_all_lanes();
  state_.transport->wake();
  for (std::thread& t : threads_) t.join();
}

// ---- Callers that wait

template <typename Next>
void Runner::guarded(Hold& hold, Next next) {
  try {
    if (starved_)
      failures_.accuse({Code::kIo,
                        fmt::format("rank {} has no memory for the work of its lanes", state_.member.me),
                        state_.member.me});
    starved_ = false;
    next();
  } catch (const std::bad_alloc&) {
    hold.take();
    starved_ = failures_.open();
    state_.lock.wake_poll();
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

// Sleeps until over() is true. Without lanes the thread does the lanes' work itself, unless another caller does, and
// polls for at most `longest` at a time. Every kInterrupts it calls `interrupted`, without the lock, because the call
// may take a lock of the caller (Python's GIL). Returns the waiting time in nanoseconds.
std::uint64_t Runner::block(Hold& hold, const std::function<bool()>& over, nanoseconds longest) {
  const std::int64_t began = now_ns();
  const bool asks = state_.limits.interrupted != nullptr;
  if (asks) longest = std::min<nanoseconds>(longest, kInterrupts);
  Instant ask = state_.now() + kInterrupts;
  ++callers_;
  while (!over()) {
    if (asks && state_.now() >= ask) {
      ask = state_.now() + kInterrupts;
      hold.unlock();
      const bool interrupted = state_.limits.interrupted();
      hold.take();
      if (interrupted) failures_.withdraw();
    } else if (lanes_ > 0 || driven_) {
      hold.wait_for_news(asks);
    } else {
      drive(hold, [&] {
        while ((!asks || state_.now() < ask) && run_some(hold, 0)) post(hold);
        if (!over()) turn(hold, longest);
      });
    }
  }
  if (--callers_ > 0 && lanes_ == 0) state_.lock.wake_callers();
  return static_cast<std::uint64_t>(now_ns() - began);
}

Status Runner::wait(Job& job, bool by_program) {
  Hold hold(state_.lock);
  const std::int64_t begin = state_.trace_ns();
  const auto over = [&] {
    return state_.shutdown.over() || (failures_.open() && job.state == Job::State::kDone);
  };
  ++job.awaited;
  const std::uint64_t blocked = block(hold, over, kIdle);
  if (by_program) state_.recorder.stats().wait_ns += blocked;
  --job.awaited;
  state_.recorder.call("wait", state_.rounds.round(), begin, state_.trace_ns());
  return state_.shutdown.verdict();
}

Result<bool> Runner::poll(const Job& job) {
  Hold hold(state_.lock);
  if (lanes_ == 0 && !driven_ && job.state != Job::State::kDone && !state_.shutdown.over()) {
    drive(hold, [&] {
      while (run_some(hold, 0)) post(hold);
      turn(hold, nanoseconds(0));
      while (run_some(hold, 0)) post(hold);
    });
    if (callers_ > 0) state_.lock.wake_callers();
  }
  if (state_.shutdown.over()) return state_.shutdown.verdict();
  return failures_.open() && job.state == Job::State::kDone;
}

// Ends the round on this rank and waits for all others: first until the round is agreed, then until every peer has
// this rank's done message. Peers need that message, and after this call the process may exit at any moment. No clock
// watches the peers of an agreed round, so a peer that accepts nothing is given the same timeout here.
Result<bool> Runner::agree(std::uint64_t away_ns, bool by_program) {
  Hold hold(state_.lock);
  Rounds& rounds = state_.rounds;
  const std::int64_t begin = state_.trace_ns();
  const std::uint64_t before = rounds.ended();
  rounds.close(away_ns);
  add_entry(agreement_.end_entry(), false);
  end_work();
  const auto over = [&] { return state_.shutdown.over() || rounds.agreed(); };
  const std::uint64_t blocked = block(hold, over, kIdle);
  if (by_program) state_.recorder.stats().wait_ns += blocked;
  state_.recorder.call("wait", rounds.round(), begin,
                       rounds.ended() > before ? std::max(begin, in_ns(rounds.since())) : state_.trace_ns());
  const auto sent = [&] { return !failures_.open() || !control_.done_pending(); };
  block(hold, sent, kInterrupts);
  rounds.stop_waiting();
  if (!rounds.agreed()) return state_.shutdown.verdict();
  return rounds.agreed_finite();
}

// Without lanes this thread completes the shutdown, unless another caller waits and does so.
void Runner::cancel() {
  Hold hold(state_.lock);
  failures_.withdraw();
  if (lanes_ > 0 || callers_ > 0) return;
  ++callers_;
  while (state_.shutdown.in_progress()) {
    if (driven_)
      hold.wait_for_news();
    else
      drive(hold, [&] { turn(hold, milliseconds(10)); });
  }
  --callers_;
  state_.lock.wake_callers();
}

void Runner::give_up(const Status& why) {
  Hold hold(state_.lock);
  failures_.accuse({why.code(), why.what(), state_.member.me});
  const auto over = [&] { return state_.shutdown.over(); };
  state_.recorder.stats().wait_ns += block(hold, over, kIdle);
}

// ---- Lanes

// Runs the next step, or several light ones, on one lane. All steps that become ready are handed over together.
// Returns false if there was no step.
bool Runner::run_some(Hold& hold, int lane) {
  if (!failures_.open()) return false;
  std::vector<Task>& taken = taken_[static_cast<std::size_t>(lane)];
  const std::span<const Task> tasks(taken.data(), state_.queue.take(taken, std::max(1, lanes_)));
  if (tasks.empty()) return false;
  const std::uint32_t round = state_.rounds.round();
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
  if (!failures_.open()) {
    state_.lock.wake_poll();
  } else if (!status.ok()) {
    failures_.accuse(status);
  } else {
    state_.queue.at(state_.trace_ns());
    for (const Task& task : tasks)
      for (const int step : task.job->together(task.step)) finish({task.job, step});
    hand_over(true);
  }
  return true;
}

Status Runner::run(std::span<const Task> tasks, int lane, std::uint32_t round) {
  std::int64_t begin = now_ns();
  for (const Task& task : tasks) {
    try {
      TITHE_TRY(task.job->unit->run(task.step, lane));
    } catch (const std::bad_alloc&) {
      const auto largest = std::ranges::max_element(task.job->unit->tensors(), {}, &TensorLayout::n);
      return {Code::kIo,
              fmt::format("rank {} has no memory to work on a bucket of {} tensors, the largest is '{}' with "
                          "{} values (docs/reference/resources.md, 'Memory')",
                          state_.member.me, task.job->unit->tensors().size(), largest->key, largest->n),
              state_.member.me};
    }
    // Each of the steps that ran together gets its share of the time, by weight.
    const std::int64_t end = now_ns();
    double left = static_cast<double>(Queue::weight(task));
    for (const int step : task.job->together(task.step)) {
      const double weight = task.job->step(step).weight;
      const double share = weight < left ? weight / left : 1;
      const std::int64_t next = begin + static_cast<std::int64_t>(share * static_cast<double>(end - begin));
      state_.recorder.note({task.job, step}, round, lane + 1, begin, next);
      begin = next;
      left -= weight;
    }
  }
  return {};
}

void Runner::compute(int lane) {
  Hold hold(state_.lock);
  while (!stop_) {
    bool ran = false;
    guarded(hold, [&] { ran = run_some(hold, lane); });
    if (!ran && !stop_) hold.wait_for_steps();
  }
}

void Runner::communicate() {
  Hold hold(state_.lock);
  while (!stop_) guarded(hold, [&] { turn(hold, kIdle); });
}

}  // namespace tithe::engine
