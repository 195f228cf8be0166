// SPDX-License-Identifier: Apache-2.0
// The work of simulated ranks: compute lanes, the communication lane, and messages.
#include "advisor/sim/rank_model.h"

#include <algorithm>
#include <utility>

namespace tithe::sim {
namespace {

// Messages that a communication lane posts at once (engine/run/message_io.cc).
constexpr std::size_t kMaxPosts = 64;
constexpr std::size_t kMaxCompleted = 64;  // completions of one poll of the transport

}  // namespace

// One stream of a device runs all its copies, in both directions, in the order of their requests
// (python/tithe/torch/_device/device.py).
Seconds World::copied(Rank r, std::size_t bucket) {
  const Cluster::Device& device = cluster_.device(cluster_.host_of(r));
  RankModel& rank = at(r);
  if (!device.exists()) return rank.copying = std::max(rank.copying, now_);
  double bytes = 0;
  for (const Part& p : work_.buckets[bucket].plan.parts) bytes += sizeof(float) * static_cast<double>(p.n);
  rank.copying = std::max(rank.copying, now_) + device.latency + bytes / device.rate;
  return rank.copying;
}

void World::hand_over(Rank r) {
  RankModel& rank = at(r);
  const std::size_t bucket = rank.handed_over++;
  for (std::size_t j = first_job_[bucket]; j < first_job_[bucket + 1]; ++j)
    rank.queue.begin(rank.queue.job(j), {});
  begin_parts(r, bucket);
  rank.queue.take_fresh();
  wake(r, true);
  communicate(r, true);
  check_done(r);
}

// Begins all jobs of the bucket that may begin (engine/program/program.h, "Window"). When all have ended, the results
// are copied to the device.
void World::begin_parts(Rank r, std::size_t bucket) {
  RankModel& rank = at(r);
  BucketJobs& b = rank.begun[bucket];
  const std::size_t first = first_job_[bucket], count = first_job_[bucket + 1] - first;
  while (b.finished < count && rank.ended[first + b.finished]) ++b.finished;
  for (; b.begun < count && runs_[first + b.begun].after <= b.finished; ++b.begun)
    rank.queue.run(rank.queue.job(first + b.begun));
  if (devices_ && b.finished == count && !b.copying_back) {
    b.copying_back = true;
    later(copied(r, bucket), TimerKind::kCopiedBack, static_cast<std::uint32_t>(r));
  }
}

// Idle lanes take ready steps. A sleeping lane is not woken for light steps.
void World::wake(Rank r, bool asleep) {
  RankModel& rank = at(r);
  if (asleep && rank.queue.light()) return;
  for (std::size_t l = 0; l < rank.lanes.size(); ++l) {
    Lane& lane = rank.lanes[l];
    if (lane.busy()) continue;
    const Seconds all = take(r, lane);
    if (!lane.busy()) return;
    cores_of(r).start(all + (asleep ? costs_.wake : 0),
                      tag(WorkOwner::kLane, static_cast<std::uint64_t>(r), l + 1), now_);
  }
}

Seconds World::take(Rank r, Lane& lane) {
  RankModel& rank = at(r);
  lane.count = rank.queue.take(lane.taken, static_cast<int>(rank.lanes.size()));
  Seconds all = 0;
  for (std::size_t k = 0; k < lane.count; ++k) {
    const Task& task = lane.taken[k];
    const Seconds s = role(r, task).price.seconds[static_cast<std::size_t>(task.step)];
    lane.each[k] = s;
    all += s;
    rank.computed += s;
    const StepKind kind = task.what().kind;
    if (kind == StepKind::kEncode || kind == StepKind::kOwn) rank.encoded += s;
    if (kind == StepKind::kMerge || kind == StepKind::kStore) rank.merged += s;
  }
  lane.began = now_;
  return all;
}

void World::ran(Rank r, Lane& lane, int number) {
  Seconds sum = 0, so_far = 0;
  for (std::size_t k = 0; k < lane.count; ++k) sum += lane.each[k];
  for (std::size_t k = 0; events_ && k < lane.count; ++k) {
    // Events of a batch divide its measured time in proportion to their cost.
    const double from = sum > 0 ? so_far / sum : 1, to = sum > 0 ? (so_far + lane.each[k]) / sum : 1;
    so_far += lane.each[k];
    note(r, lane.taken[k], number, lane.began + from * (now_ - lane.began),
         lane.began + to * (now_ - lane.began));
  }
  // Steps that become ready are taken only after the whole batch has ended.
  for (std::size_t k = 0; k < lane.count; ++k) finish(r, lane.taken[k]);
  lane.count = 0;
}

void World::lane_done(Rank r, std::size_t l) {
  ran(r, at(r).lanes[l], static_cast<int>(l) + 1);
  wake(r, false);
  communicate(r, true);
  check_done(r);
}

// The communication lane first posts messages, then runs light steps, then processes completions.
void World::communicate(Rank r, bool asleep) {
  RankModel& rank = at(r);
  if (rank.busy) return;
  rank.posting.clear();
  rank.completing.clear();
  while (!rank.queue.post().empty() && rank.posting.size() < kMaxPosts)
    rank.posting.push_back(rank.queue.post().pop());
  const Seconds light = rank.posting.empty() && rank.queue.light() ? take(r, rank.light) : 0;
  if (rank.posting.empty() && !rank.light.busy())
    while (!rank.arrivals.empty() && rank.completing.size() < kMaxCompleted) {
      rank.completing.push_back(rank.arrivals.front());
      rank.arrivals.pop_front();
    }
  if (rank.posting.empty() && rank.completing.empty() && !rank.light.busy()) return;
  const Seconds handling = static_cast<double>(rank.posting.size()) * costs_.post +
                           static_cast<double>(rank.completing.size()) * costs_.complete;
  const Seconds work = light + handling + (asleep ? costs_.turn : 0);
  rank.handled += handling;
  rank.busy = true;
  cores_of(r).start(work, tag(WorkOwner::kLane, static_cast<std::uint64_t>(r)), now_);
}

void World::communicated(Rank r) {
  RankModel& rank = at(r);
  rank.busy = false;
  for (const Task& task : rank.posting) {
    const MatchedStep match = role(r, task).match[static_cast<std::size_t>(task.step)];
    if (task.what().kind == StepKind::kRecv)
      post_recv(task, match);
    else
      post_send(r, task, match);
  }
  for (const Task& task : rank.completing) finish(r, task);
  if (rank.light.busy()) ran(r, rank.light, static_cast<int>(rank.lanes.size()) + 1);
  wake(r, true);
  communicate(r, false);
  check_done(r);
}

void World::post_recv(const Task& task, MatchedStep send) {
  std::uint32_t& message =
      run_of(task).messages[static_cast<std::size_t>(send.rank)][static_cast<std::size_t>(send.step)];
  if (message == kNone) {
    message = kAwaited;
    if (costs_.long_messages.protocol == SendProtocol::kPosted)
      run_of(task).posted[static_cast<std::size_t>(send.rank)][static_cast<std::size_t>(send.step)] = now_;
    return;
  }
  Message& m = messages_[message];
  m.matched = true;
  if (m.arrived) return take(message);
  if (m.granted) return;
  // The grant travels back to the sender. Under kRendezvous it is not sent before the question has arrived.
  const Seconds latency = pair_of(m).latency;
  const bool rendezvous = costs_.long_messages.protocol == SendProtocol::kRendezvous;
  later((rendezvous ? std::max(now_, m.posted + latency) : now_) + latency, TimerKind::kGrant, message);
}

// Posts a message. It is sent at once if it is short or needs no grant; if the receive is already posted, after the
// grant has travelled; else post_recv() grants it later.
void World::post_send(Rank r, const Task& task, MatchedStep recv) {
  const engine::Step& step = task.what();
  RankModel& rank = at(r);
  const std::uint32_t number = new_message();
  Message& m = messages_[number];
  m.from = r;
  m.to = recv.rank;
  m.pair = pair(r, step.peer);
  m.send = task;
  m.recv = {&at(recv.rank).queue.job(task.job->number), recv.step};
  m.posted = now_;
  m.bytes = role(r, task).price.bytes[static_cast<std::size_t>(step.slot)];
  rank.bytes += m.bytes;
  std::uint32_t& message =
      run_of(task).messages[static_cast<std::size_t>(r)][static_cast<std::size_t>(task.step)];
  m.matched = std::exchange(message, number) == kAwaited;
  const LongMessages& rule = costs_.long_messages;
  const bool starts = rule.protocol == SendProtocol::kEager || m.bytes <= static_cast<double>(rule.above);
  rank.queue.posted(task);
  if (!starts && !m.matched) return;
  Seconds granted = now_;
  if (!starts) {
    const Seconds latency = pair_of(m).latency;
    granted =
        rule.protocol == SendProtocol::kRendezvous
            ? now_ + 2 * latency
            : run_of(task).posted[static_cast<std::size_t>(r)][static_cast<std::size_t>(task.step)] + latency;
  }
  if (granted > now_)
    later(granted, TimerKind::kGrant, number);
  else
    grant(number);
}

std::uint32_t World::new_message() {
  if (free_ == kNone) {
    messages_.emplace_back();
    return static_cast<std::uint32_t>(messages_.size()) - 1;
  }
  const std::uint32_t number = free_;
  free_ = messages_[number].next;
  messages_[number] = {};
  return number;
}

std::uint32_t World::pair(Rank from, Rank to) {
  const auto key = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  const auto [at, fresh] = pair_numbers_.try_emplace(key, static_cast<std::uint32_t>(pairs_.size()));
  if (!fresh) return at->second;
  Pair p;
  p.latency = route_of(cluster_, classes_, from, to, links_);
  // The cost per byte was measured between hosts. Inside a host, neither end spends more time on a byte than its link
  // does.
  if (cluster_.host_of(from) == cluster_.host_of(to))
    p.of_byte = 1 / cluster_.rates()[static_cast<std::size_t>(links_[0])];
  const auto route = routes_.find(links_);
  p.route =
      route != routes_.end() ? route->second : routes_.emplace(links_, flows_.route(links_)).first->second;
  const auto back =
      pair_numbers_.find(static_cast<std::uint64_t>(to) << 32 | static_cast<std::uint32_t>(from));
  if (back != pair_numbers_.end() && classes_.simulated() == classes_.world())
    flows_.oppose(p.route, pairs_[back->second].route);
  pairs_.push_back(p);
  return at->second;
}

void World::grant(std::uint32_t number) {
  Message& m = messages_[number];
  m.granted = true;
  Pair& p = pair_of(m);
  (p.first == kNone ? p.first : messages_[p.last].next) = number;
  p.last = number;
  if (!p.busy) next_message(p);
}

void World::next_message(Pair& p) {
  if (p.first == kNone) return;
  const std::uint32_t number = p.first;
  Message& m = messages_[number];
  p.first = m.next;
  p.busy = true;
  m.parts_left = 1;
  const Seconds send = m.bytes * std::min(costs_.send_byte, p.of_byte);
  const Seconds receive = m.bytes * std::min(costs_.receive_byte, p.of_byte);
  flows_.start(p.route, m.bytes, number, now_);
  if (send > 0) {
    ++m.parts_left;
    cores_of(m.from).start(send, tag(WorkOwner::kMessage, number), now_);
  }
  if (receive > 0) {
    ++m.parts_left;
    cores_of(m.to).start(receive, tag(WorkOwner::kMessage, number), now_);
  }
}

void World::part_done(std::uint32_t number) {
  Message& m = messages_[number];
  if (--m.parts_left > 0) return;
  later(now_ + pair_of(m).latency, TimerKind::kArrive, number);
  const Rank from = m.from;
  note(from, m.send, 0, m.posted, now_);
  finish(from, m.send);
  // After the last send of a part, waiting parts may begin.
  wake(from, true);
  communicate(from, true);
  check_done(from);
}

void World::arrive(std::uint32_t number) {
  Message& m = messages_[number];
  m.arrived = true;
  if (!m.matched) return;
  const Rank to = m.to;
  take(number);
  communicate(to, true);
}

// The message has arrived and its receive is posted.
void World::take(std::uint32_t number) {
  Message& m = messages_[number];
  at(m.to).arrivals.push_back(m.recv);
  m.next = std::exchange(free_, number);
}

void World::finish(Rank r, const Task& task) {
  if (task.what().kind == StepKind::kRecv) note(r, task, 0, now_, now_);
  RankModel& rank = at(r);
  if (!rank.queue.finished(task)) return;
  Job& job = *task.job;
  PartRun& run = runs_[job.number];
  rank.ended[job.number] = true;
  static_cast<void>(rank.queue.forget(job));  // frees its memory: a world may have many jobs
  if (--run.left == 0) {
    run.messages = {};
    run.posted = {};
  }
  begin_parts(r, static_cast<std::size_t>(run.bucket));
}

void World::check_done(Rank r) {
  RankModel& rank = at(r);
  if (rank.done || rank.handed_over < work_.buckets.size() || rank.queue.active() > 0) return;
  if (devices_ && rank.copied_back < work_.buckets.size()) return;
  rank.done = true;
  rank.finished = now_;
  --left_;
}

void World::note(Rank r, const Task& task, int lane, Seconds begin, Seconds end) {
  const PartRun& run = run_of(task);
  if (events_) out_.events.push_back({r, run.bucket, run.part, task.step, lane, begin, end});
}

}  // namespace tithe::sim
