// SPDX-License-Identifier: Apache-2.0
// What the ranks of a world do: lanes of computing, the communication lane, messages.
#include "sim/seats.h"

namespace tithe::sim {
namespace {

constexpr std::size_t kMostPosts = 64;      // that a communication lane hands over at once (engine/mail.cc)
constexpr std::size_t kMostCompleted = 64;  // that one look at the transport brings

}  // namespace

void World::hand_over(Rank r) {
  Seat& rank = at(r);
  const std::size_t first = rank.handed_over == 0 ? 0 : rank.jobs_until[rank.handed_over - 1];
  for (std::size_t j = first; j < rank.jobs_until[rank.handed_over]; ++j) {
    Job& job = rank.queue.job(j);
    rank.queue.begin(job, {});
    rank.queue.run(job);
  }
  ++rank.handed_over;
  rank.queue.take_fresh();
  wake(r, true);
  communicate(r, true);
  look_if_done(r);
}

// Lanes that have nothing to do take what is there.
void World::wake(Rank r, bool asleep) {
  Seat& rank = at(r);
  for (std::size_t l = 0; l < rank.lanes.size(); ++l) {
    Lane& lane = rank.lanes[l];
    if (lane.busy) continue;
    lane.taken.resize(kMostTaken);
    const std::size_t count = rank.queue.take(lane.taken, work_.lanes);
    if (count == 0) return;
    lane.taken.resize(count);
    lane.each.clear();
    Seconds all = asleep ? costs_.wake : 0;
    for (const Task& task : lane.taken) {
      const Seconds s = rank.of_job[task.job->number]->price.seconds[static_cast<std::size_t>(task.step)];
      lane.each.push_back(s);
      all += s;
      rank.computed += s;
      const StepKind kind = task.what().kind;
      if (kind == StepKind::kEncode || kind == StepKind::kOwn) rank.encoded += s;
      if (kind == StepKind::kMerge || kind == StepKind::kStore) rank.merged += s;
    }
    lane.busy = true;
    lane.began = now_;
    cores_of(r).start(all, tag(Whose::kLane, static_cast<std::uint64_t>(r), l + 1), now_);
  }
}

void World::lane_done(Rank r, std::size_t l) {
  Seat& rank = at(r);
  Lane& lane = rank.lanes[l];
  lane.busy = false;
  Seconds sum = 0, so_far = 0;
  for (const Seconds s : lane.each) sum += s;
  const std::vector<Task> ran = lane.taken;
  for (std::size_t k = 0; k < ran.size(); ++k) {
    // Within a batch, steps take their share of the time that all of it took.
    const double from = sum > 0 ? so_far / sum : 1, to = sum > 0 ? (so_far + lane.each[k]) / sum : 1;
    so_far += lane.each[k];
    note(r, ran[k], static_cast<int>(l) + 1, lane.began + from * (now_ - lane.began),
         lane.began + to * (now_ - lane.began));
  }
  for (const Task& task : ran) finish(r, task);
  wake(r, false);
  communicate(r, true);
  look_if_done(r);
}

// The communication lane: what is to be handed over first, then what has come.
void World::communicate(Rank r, bool asleep) {
  Seat& rank = at(r);
  if (rank.busy) return;
  rank.posting.clear();
  rank.completing.clear();
  while (!rank.queue.post().empty() && rank.posting.size() < kMostPosts)
    rank.posting.push_back(rank.queue.post().pop());
  if (rank.posting.empty())
    while (!rank.come.empty() && rank.completing.size() < kMostCompleted) {
      rank.completing.push_back(rank.come.front());
      rank.come.pop_front();
    }
  if (rank.posting.empty() && rank.completing.empty()) return;
  const Seconds work = static_cast<double>(rank.posting.size()) * costs_.post +
                       static_cast<double>(rank.completing.size()) * costs_.complete +
                       (asleep ? costs_.turn : 0);
  rank.busy = true;
  cores_of(r).start(work, tag(Whose::kLane, static_cast<std::uint64_t>(r)), now_);
}

void World::communicated(Rank r) {
  Seat& rank = at(r);
  rank.busy = false;
  const std::vector<Task> posting = rank.posting, completing = rank.completing;
  for (const Task& task : posting) post(r, task);
  for (const Task& task : completing) finish(r, task);
  wake(r, true);
  communicate(r, false);
  look_if_done(r);
}

void World::post(Rank r, const Task& task) {
  const engine::Step& step = task.what();
  if (step.kind == StepKind::kRecv) {
    const auto [from, to] = sender(step.peer, r);
    Meeting& m = meeting({from, to}, task);
    if (m.sent.empty()) {
      m.posted.push_back(task);
      return;
    }
    const std::uint32_t number = m.sent.front();
    m.sent.pop_front();
    Message& message = messages_[number];
    message.recv = task;
    message.matched = true;
    if (message.arrived) {
      at(r).come.push_back(task);
      return;
    }
    // The receiver's word travels back to the sender.
    if (!message.granted) later(now_ + message.pair->latency, What::kGrant, number);
    return;
  }
  Seat& rank = at(r);
  Message message;
  message.from = r;
  message.to = seat(step.peer);
  message.pair = &pair(r, step.peer);
  message.send = task;
  message.posted = now_;
  message.bytes = rank.of_job[task.job->number]->price.bytes[static_cast<std::size_t>(step.slot)];
  rank.bytes += message.bytes;
  const auto number = static_cast<std::uint32_t>(messages_.size());
  Meeting& m = meeting({r, step.peer}, task);
  const bool eager = message.bytes <= static_cast<double>(costs_.eager_bytes);
  Seconds granted = now_;
  if (!m.posted.empty()) {
    message.recv = m.posted.front();
    message.matched = true;
    m.posted.pop_front();
    if (!eager) granted = now_ + 2 * message.pair->latency;  // asks, and is answered
  } else {
    m.sent.push_back(number);
  }
  const bool may_leave = eager || message.matched;
  messages_.push_back(message);
  rank.queue.posted(task);
  if (may_leave) {
    if (granted > now_)
      later(granted, What::kGrant, number);
    else
      grant(number);
  }
}

void World::grant(std::uint32_t number) {
  Message& m = messages_[number];
  m.granted = true;
  Pair& p = *m.pair;
  p.waiting.push_back(number);
  if (!p.busy) next_message(p);
}

void World::next_message(Pair& p) {
  if (p.waiting.empty()) return;
  const std::uint32_t number = p.waiting.front();
  p.waiting.pop_front();
  p.busy = true;
  Message& m = messages_[number];
  m.parts_left = 1;
  const Seconds send = m.bytes * costs_.send_byte, receive = m.bytes * costs_.receive_byte;
  flows_.start(p.route, m.bytes, number, now_);
  if (send > 0) {
    ++m.parts_left;
    cores_of(m.from).start(send, tag(Whose::kMessage, number), now_);
  }
  if (receive > 0) {
    ++m.parts_left;
    cores_of(m.to).start(receive, tag(Whose::kMessage, number), now_);
  }
}

void World::part_done(std::uint32_t number) {
  Message& m = messages_[number];
  if (--m.parts_left > 0) return;
  note(m.from, m.send, 0, m.posted, now_);
  finish(m.from, m.send);
  const Rank from = m.from;
  later(now_ + m.pair->latency, What::kArrive, number);
  // The last send of a part lets parts begin that waited for it.
  wake(from, true);
  communicate(from, true);
  look_if_done(from);
}

void World::arrive(std::uint32_t number) {
  Message& m = messages_[number];
  m.arrived = true;
  if (!m.matched) return;
  at(m.to).come.push_back(m.recv);
  communicate(m.to, true);
}

void World::finish(Rank r, const Task& task) {
  if (task.what().kind == StepKind::kRecv) note(r, task, 0, now_, now_);
  at(r).queue.finished(task);
}

void World::look_if_done(Rank r) {
  Seat& rank = at(r);
  if (rank.done || rank.handed_over < work_.buckets.size() || rank.queue.active() > 0) return;
  rank.done = true;
  rank.over = now_;
  --left_;
}

void World::note(Rank r, const Task& task, int lane, Seconds begin, Seconds end) {
  if (events_) out_.events.push_back({r, static_cast<int>(task.job->number), task.step, lane, begin, end});
}

}  // namespace tithe::sim
