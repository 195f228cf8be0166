// SPDX-License-Identifier: Apache-2.0
#include "engine/run/message_io.h"

#include "engine/run/operations.h"

namespace tithe::engine {

constexpr std::size_t kMaxPosts = 64;  // messages per batch

MessageIo::MessageIo(RunnerState& state, FailureDetector& failures)
    : state_(state), failures_(failures), completions_(256) {
  posted_.reserve(kMaxPosts);
}

void MessageIo::expect(const Program& program) {
  if (!state_.send_window.on()) return;
  std::vector<std::size_t> frames(state_.peers.size());
  for (const Step& step : program.steps)
    if (step.kind == StepKind::kSend) ++frames[static_cast<std::size_t>(step.peer)];
  state_.send_window.expect(frames, program.parts.size());
}

SendWindow::Send MessageIo::windowed(const Task& task) const {
  const Job& job = *task.job;
  const Step& step = task.what();
  return {.urgency = job.program->mail_levels[step.level].urgency,
          .order = std::uint64_t{job.order} << 32 | static_cast<std::uint64_t>(step.part),
          .op = step_op(job, task.step),
          .peer = step.peer,
          .bytes = job.unit->outgoing(step).size()};
}

// Takes a batch under the lock, passes it to the transport without the lock, and records the results under the lock.
void MessageIo::post_batch(RunnerLock::Hold& hold) {
  const Instant now = state_.now();
  posted_.clear();
  const auto add = [&](const Task& task) {
    task.job->posted_ns[static_cast<std::size_t>(task.step)] = in_ns(now);
    posted_.push_back({task});
  };
  while (!state_.queue.post().empty() && posted_.size() < kMaxPosts) {
    const Task task = state_.queue.post().pop();
    if (state_.send_window.on() && task.what().kind == StepKind::kSend)
      state_.send_window.offer(windowed(task));
    else
      add(task);
  }
  while (posted_.size() < kMaxPosts) {
    const std::optional<SendWindow::Send> send = state_.send_window.next();
    if (!send) break;
    add(task_of(send->op));
  }
  hold.unlock();
  for (Posted& p : posted_) {
    const Step& step = p.task.what();
    Unit& unit = *p.task.job->unit;
    const OpId op = step_op(*p.task.job, p.task.step);
    if (state_.recorder.on())
      p.task.job->posted_ns[static_cast<std::size_t>(p.task.step)] = in_ns(state_.now());
    p.status = step.kind == StepKind::kSend
                   ? state_.transport->send(step.peer, unit.channel(step.part), unit.outgoing(step), op)
                   : state_.transport->recv(step.peer, unit.channel(step.part), unit.incoming(step), op);
  }
  hold.take();
  SessionStats& stats = state_.recorder.stats();
  state_.queue.at(state_.trace_ns());
  for (Posted& p : posted_) {
    const Step& step = p.task.what();
    if (!p.status.ok()) {
      complete({step_op(*p.task.job, p.task.step), 0, std::move(p.status)}, now);
    } else if (step.kind == StepKind::kSend) {
      const std::size_t bytes = p.task.job->unit->outgoing(step).size();
      state_.peer(step.peer).sent += bytes;
      ++stats.frames_sent;
      stats.bytes_sent += bytes;
      if (failures_.open()) state_.queue.posted(p.task);
    }
  }
}

std::span<const Completion> MessageIo::poll(RunnerLock::Hold& hold, std::chrono::nanoseconds wait) {
  state_.lock.begin_poll();
  hold.unlock();
  const std::size_t count = state_.transport->poll(completions_, wait);
  hold.take();
  state_.lock.end_poll();
  return {completions_.data(), count};
}

// If a peer's message fails, the peer is lost or has sent wrong bytes; a cancelled receive means that the peer is
// shutting down.
std::optional<Task> MessageIo::complete(const Completion& done, Instant now) {
  const Task task = task_of(done.op);
  const Step& step = task.what();
  const std::int64_t begin = std::exchange(task.job->posted_ns[static_cast<std::size_t>(task.step)], 0);
  if (!failures_.open()) return std::nullopt;
  // This rank cancels nothing before its own shutdown, so the peer has cancelled the message and is shutting down.
  // Its farewell follows on the control channel; until then the message counts as missing.
  if (done.status.code() == Code::kCancelled) {
    task.job->posted_ns[static_cast<std::size_t>(task.step)] = begin;
    state_.peer(step.peer).cancelled = true;
    failures_.check_soon();  // if the peer sends no farewell, no completion reports it
    return std::nullopt;
  }
  if (done.status.code() == Code::kPeerLost || done.status.code() == Code::kTimeout) {
    failures_.fail({lost(done.status), {Code::kPeerLost, done.status.what(), step.peer}});
    return std::nullopt;
  }
  if (!done.status.ok()) {
    const bool too_long = done.status.code() == Code::kTooSmall;
    // If strangers can send, the sender of a frame that is too long to be checked is unknown.
    const Rank sender = too_long && state_.member.strangers ? Status::kNoPeer : step.peer;
    failures_.accuse({too_long ? Code::kCorrupt : done.status.code(), done.status.what(), sender});
    return std::nullopt;
  }
  if (step.kind == StepKind::kRecv) {
    task.job->unit->received(step, done.bytes);
    FailureDetector::record_sign(state_.peer(step.peer), true, now);
  } else if (state_.send_window.on()) {
    state_.send_window.done(windowed(task));
  }
  state_.recorder.note(task, state_.rounds.round(), 0, begin, in_ns(now));
  return task;
}

// A cancelled message keeps its place on its channel (Transport, in_place), so no peer takes a later frame for it.
void MessageIo::cancel_all() {
  for (const auto& job : state_.queue.jobs())
    for (std::size_t s = 0; s < job->posted_ns.size(); ++s)
      if (job->posted_ns[s] != 0) state_.transport->cancel(step_op(*job, static_cast<int>(s)));
}

}  // namespace tithe::engine
