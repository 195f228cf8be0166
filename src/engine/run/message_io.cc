// SPDX-License-Identifier: Apache-2.0
// The communication lane: posts ready messages to the transport, and handles completed operations.
//
// Threads: only the communication lane (or the waiting caller, without lanes), under the runner's mutex, which is
// unlocked while the transport accepts a batch of messages and while it polls.
// Owners: a unit owns the memory of its messages, and lends it to the transport until the operation completes.
// Failure: a failed message of a step ends the session; shut_down() cancels the operations in flight.
#include <algorithm>

#include "engine/run/operations.h"
#include "engine/run/runner.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

}  // namespace

// Sends the job's card to all peers. A failed send is ignored: a lost peer is detected by the messages that are
// awaited from it.
std::size_t Runner::show_card(Job& job) {
  std::size_t shown = 0;
  const ByteView card(job.card_frame.get(), job.card_bytes);
  for (Rank r = 0; r < member_.world; ++r)
    if (r != member_.me && transport_->send(r, kControlChannel, card, control_op(kControlSend, r)).ok())
      ++shown;
  return shown;
}

// Posts ready messages to the transport, in order.
void Runner::post(Hold& hold) {
  while (!queue_.cards().empty() && shutdown_.open()) {
    Job& job = *queue_.cards().pop();
    for (Peer& p : peers_) ++p.messages_sent;
    hold.unlock();
    const std::size_t shown = show_card(job);
    hold.take();
    shown_ += shown;
  }
  while ((!queue_.post().empty() || send_window_.has_next()) && shutdown_.open()) post_batch(hold);
}

Task Runner::task_of(OpId op) const { return {&queue_.job(op >> 32), static_cast<int>(op & 0xffffffffU)}; }

SendWindow::Send Runner::paced(const Task& task) const {
  const Job& job = *task.job;
  const Step& step = task.what();
  return {.urgency = job.program->mail_levels[step.level].urgency,
          .order = std::uint64_t{job.order} << 32 | static_cast<std::uint64_t>(step.part),
          .op = step_op(job, task.step),
          .peer = step.peer,
          .bytes = job.unit->outgoing(step).size()};
}

// Posts up to kMostPosts messages with one unlock. Receives go to the transport directly. If there is a send window,
// sends pass through it and leave in its order.
void Runner::post_batch(Hold& hold) {
  const Instant now = instant();
  posted_.clear();
  const auto add = [&](const Task& task) {
    task.job->posted_ns[static_cast<std::size_t>(task.step)] = in_ns(now);
    posted_.push_back({task});
  };
  while (!queue_.post().empty() && posted_.size() < kMostPosts) {
    const Task task = queue_.post().pop();
    if (send_window_.on() && task.what().kind == StepKind::kSend)
      send_window_.offer(paced(task));
    else
      add(task);
  }
  while (posted_.size() < kMostPosts) {
    const std::optional<SendWindow::Send> send = send_window_.next();
    if (!send) break;
    add(task_of(send->op));
  }
  hold.unlock();
  for (Posted& p : posted_) {
    const Step& step = p.task.what();
    Unit& unit = *p.task.job->unit;
    const OpId op = step_op(*p.task.job, p.task.step);
    const Channel channel = unit.channel(step.part);
    if (recorder_.on()) p.task.job->posted_ns[static_cast<std::size_t>(p.task.step)] = now_ns();
    if (step.kind == StepKind::kSend) {
      const ByteView out = unit.outgoing(step);
      p.bytes = out.size();
      p.status = transport_->send(step.peer, channel, out, op);
    } else {
      p.status = transport_->recv(step.peer, channel, unit.incoming(step), op);
    }
  }
  hold.take();
  SessionStats& stats = recorder_.stats();
  queue_.at(trace_ns());
  for (Posted& p : posted_) {
    const Step& step = p.task.what();
    if (!p.status.ok()) {
      complete({step_op(*p.task.job, p.task.step), 0, std::move(p.status)}, now);
    } else if (step.kind == StepKind::kSend) {
      at(step.peer).sent += p.bytes;
      ++stats.frames_sent;
      stats.bytes_sent += p.bytes;
      if (shutdown_.open()) queue_.posted(p.task);
    }
  }
  hand_over();
}

// One turn of the communication lane: posts messages, polls the transport, handles its completions, and checks the
// liveness of peers.
void Runner::turn(Hold& hold, nanoseconds wait) {
  do {  // these unlock, and no thread wakes this one meanwhile
    post(hold);
    build(hold);
    send_pending(hold);
  } while (shutdown_.open() && (has_mail() || pending_ || reconfiguration_.has_work() ||
                                (runs_itself() && run_some(hold, lanes_))));
  if (shutdown_.in_progress()) {
    if (shut_down()) return;
    wait = std::min<nanoseconds>(wait, milliseconds(10));
  } else if (watching()) {
    wait = std::clamp<nanoseconds>(liveness_.next_check() - instant(), nanoseconds(0), wait);
  }
  // A caller that waits until this rank's done message is sent sleeps until it is woken.
  const bool sending = rounds_.agreed() && done_messages_pending() && instant() < send_deadline();
  if (sending) wait = std::min<nanoseconds>(wait, send_deadline() - instant());
  if (stop_) return;
  if (const std::optional<Instant> at = proxy_due_at()) {
    if (*at <= instant()) {
      wakeups_.due = due_ = rounds_.ended() + 1;
    } else {
      wait = std::min<nanoseconds>(wait, *at - instant());
    }
  }
  polling_ = true;
  hold.unlock();
  const std::size_t count = transport_->poll(completions_, wait);
  hold.take();
  polling_ = false;
  const Instant now = instant();
  for (std::size_t k = 0; k < count; ++k) complete(completions_[k], recorder_.on() ? instant() : now);
  hand_over();
  if (sending && now >= send_deadline()) wake_callers();
  if (!watching() || now < liveness_.next_check()) return;
  if (const std::optional<Trouble> trouble = liveness_.check()) return fail(*trouble);
  pending_ = true;  // check() may have set ask_pending
}

// Handles a completed operation. If a peer's message fails, the peer is lost or has sent wrong bytes; a cancelled
// receive means that the peer is shutting down.
void Runner::complete(const Completion& done, Instant now) {
  queue_.at(in_ns(now));
  if ((done.op & kControlBit) != 0) return complete_control(done);
  const Task task = task_of(done.op);
  const Step& step = task.what();
  const std::int64_t begin = std::exchange(task.job->posted_ns[static_cast<std::size_t>(task.step)], 0);
  if (!shutdown_.open()) return;
  // This rank cancels nothing before its own shutdown, so the peer has cancelled the message and is shutting down.
  // Its farewell follows on the control channel; until then the message counts as missing.
  if (done.status.code() == Code::kCancelled) {
    task.job->posted_ns[static_cast<std::size_t>(task.step)] = begin;
    at(step.peer).cancelled = true;
    return liveness_.check_soon();  // if the peer sends no farewell, no completion reports it
  }
  if (!done.status.ok()) {
    if (done.status.code() == Code::kPeerLost || done.status.code() == Code::kTimeout)
      return fail({lost(done.status), {Code::kPeerLost, done.status.what(), step.peer}});
    const bool too_long = done.status.code() == Code::kTooSmall;
    // If strangers can send, the sender of a frame that is too long to be checked is unknown.
    const Rank sender = too_long && member_.strangers ? Status::kNoPeer : step.peer;
    return fail(
        {Finding::kAccused, {too_long ? Code::kCorrupt : done.status.code(), done.status.what(), sender}});
  }
  if (step.kind == StepKind::kRecv) {
    task.job->unit->received(step, done.bytes);
    Liveness::record_sign(at(step.peer), true, now);
  }
  if (send_window_.on() && step.kind == StepKind::kSend) send_window_.done(paced(task));
  recorder_.note(task, rounds_.round(), 0, begin, in_ns(now));
  finish(task);
}

}  // namespace tithe::engine
