// SPDX-License-Identifier: Apache-2.0
// Who sleeps, and who wakes it. All that these conditions read changes under mutex_.
//
//   compute lane    on work_, until a step is ready or the runner stops. enqueue() wakes one for each step, ~Runner
//                   all
//   caller          on news_, until its job is done, the round is agreed or the session is over; ~Runner until nobody
//                   parts. release() and finish() wake it for a job, settle() and heard_farewell() for a round,
//                   parted() for the end. With `interrupted` it also wakes by itself
//   communication   in poll(), until something completes, wake() is called or its clock is over. Who gives it work
//   lane            calls nudge(): start (cards), enqueue (sends, receives), agree (done), fail (farewells), run_one
//                   (the last step of a session that parts); ~Runner calls wake() itself
//
// A nudge is never lost: turn() looks at all queues and sets polling_ without letting go of mutex_ between. Before
// that, who adds work is seen by the look; after it, wake() ends also a poll that has not begun yet (Transport::wake).
// What the lane gives to itself while it completes operations (answers, notes) is seen in its next turn.
#include "engine/runner.h"

#include <algorithm>

#include "engine/operations.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kTraceEvents = 65536;
constexpr nanoseconds kIdle = std::chrono::hours(1);
constexpr milliseconds kInterrupts{100};  // how often a caller that waits is asked

std::string_view op_name(StepKind kind) {
  switch (kind) {
    case StepKind::kOwn:
    case StepKind::kEncode:
      return "encode";
    case StepKind::kSend:
      return "send";
    case StepKind::kRecv:
      return "recv";
    case StepKind::kMerge:
      return "merge";
    case StepKind::kStore:
      return "store";
    case StepKind::kCheck:
      return "check";
    case StepKind::kLoad:
      return "load";
    case StepKind::kUnload:
      return "unload";
  }
  return "";
}

}  // namespace

Runner::Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, Patience limits)
    : member_(member),
      lanes_(lanes),
      limits_(std::move(limits)),
      peers_(static_cast<std::size_t>(member.world)),
      transport_(std::move(transport)),
      completions_(64),
      awaited_(static_cast<std::size_t>(member.world)),
      said_(static_cast<std::size_t>(member.world)),
      farewell_frames_(make_arena(2 * kControlBytes)) {
  for (Peer& p : peers_) {
    p.out = make_arena(kControlBytes);
    p.in = make_arena(kControlBytes);
  }
  for (Rank r = 0; r < member_.world; ++r) listen(r);
  if (lanes_ == 0) return;
  threads_.emplace_back([this] { communicate(); });
  for (int lane = 0; lane < lanes_; ++lane) threads_.emplace_back([this, lane] { compute(lane); });
}

Runner::~Runner() {
  cancel();
  {
    Lock lock(mutex_);
    if (lanes_ == 0)
      while (life_ == Life::kParting) turn(lock, milliseconds(10));
    else
      news_.wait(lock, [&] { return life_ != Life::kParting; });
    stop_ = true;
    work_.notify_all();
    transport_->wake();
  }
  for (std::thread& t : threads_) t.join();
}

// ---- Jobs

Job& Runner::add(std::unique_ptr<Unit> unit, Card card) {
  const Lock lock(mutex_);
  auto job = std::make_unique<Job>();
  const std::size_t steps = unit->program().steps.size();
  job->unit = std::move(unit);
  job->number = card.number = static_cast<std::uint32_t>(jobs_.size());
  job->card = std::move(card);
  job->waits.resize(steps);
  job->posted_ns.resize(steps);
  job->card_frame = make_arena(kControlBytes);
  job->card_bytes = write_card(job->card, voice(), {job->card_frame.get(), kControlBytes});
  capacity_ += steps;
  ready_.reserve(capacity_);
  post_.reserve(capacity_);
  jobs_.push_back(std::move(job));
  return *jobs_.back();
}

Status Runner::start(Job& job, std::span<const Tensor> bucket, std::uint32_t round) {
  const Lock lock(mutex_);
  if (life_ != Life::kOpen) return verdict();
  round_ = round;
  began_ = round_open_ = true;
  for (Rank r = 0; r < member_.world; ++r)  // it ends this session now, and not when something is missed
    if (at(r).left && said_[static_cast<std::size_t>(r)]) {
      fail(Finding::kLeft, {Code::kPeerLost, said_[static_cast<std::size_t>(r)]->what, r}, r);
      return {};
    }
  job.unit->begin(bucket, round);
  for (std::size_t s = 0; s < job.waits.size(); ++s) job.waits[s] = job.unit->program().steps[s].waits;
  job.left = job.waits.size();
  job.state = Job::State::kAwaitsCards;
  job.began = instant();
  if (!watching()) begin_watch();
  ++active_;
  stats_.values += job.unit->values();
  if (!job.agreed) cards_to_send_.push(&job);
  release(job);
  nudge();
  return {};
}

// Lets a job run once the cards of all ranks for its layout are there and equal.
void Runner::release(Job& job) {
  if (job.state != Job::State::kAwaitsCards) return;
  if (!job.agreed) {
    std::vector<Card> all;
    for (Rank r = 0; r < member_.world; ++r) {
      Peer& p = at(r);
      if (r == member_.me)
        all.push_back(job.card);
      else if (p.first_card == job.number && !p.cards.empty())
        all.push_back(p.cards.front());
      else if (p.gone)  // its card did not come before it went, and nothing else will
        return fail(lost(p.why_gone), {Code::kPeerLost, p.why_gone.what(), r});
      else
        return;
    }
    if (const Status s = compare_cards(all); !s.ok()) return fail(Finding::kAccused, s);
    job.agreed = true;
    for (Rank r = 0; r < member_.world; ++r)
      if (r != member_.me) {
        at(r).cards.pop();
        ++at(r).first_card;
      }
  }
  job.state = Job::State::kRuns;
  const auto& steps = job.unit->program().steps;
  if (steps.empty()) {
    job.state = Job::State::kDone;
    --active_;
    news_.notify_all();
    return;
  }
  for (std::size_t s = 0; s < steps.size(); ++s)
    if (steps[s].waits == 0) enqueue(job, static_cast<int>(s));
}

void Runner::enqueue(Job& job, int step) {
  const StepKind kind = job.unit->program().steps[static_cast<std::size_t>(step)].kind;
  if (kind == StepKind::kSend || kind == StepKind::kRecv) {
    post_.push({&job, step});
    nudge();
  } else {
    ready_.push({&job, step});
    work_.notify_one();
  }
}

void Runner::nudge() {
  if (polling_) transport_->wake();
}

void Runner::release_next(Job& job, const Step& step) {
  const Program& p = job.unit->program();
  for (std::uint32_t k = 0; k < step.next.count; ++k) {
    const int next = p.indices[step.next.first + k];
    if (--job.waits[static_cast<std::size_t>(next)] == 0) enqueue(job, next);
  }
}

void Runner::finish(Job& job, const Step& step) {
  if (step.kind != StepKind::kSend)
    release_next(job, step);  // a send's followers waited for its posting only
  if (--job.left > 0) return;
  job.unit->end();
  job.state = Job::State::kDone;
  --active_;
  news_.notify_all();
}

// Asks the caller's own question, without the lock: it may need a lock of the caller's (Python's).
bool Runner::interrupted(Lock& lock) {
  if (!limits_.interrupted) return false;
  lock.unlock();
  const bool yes = limits_.interrupted();
  lock.lock();
  return yes;
}

void Runner::block(Lock& lock, const std::function<bool()>& over) {
  const std::int64_t begin = now_ns();
  Clock::time_point ask = instant() + kInterrupts;
  while (!over()) {
    if (limits_.interrupted && instant() >= ask) {
      ask = instant() + kInterrupts;
      if (interrupted(lock)) withdraw();
    }
    if (lanes_ > 0) {
      if (limits_.interrupted)
        news_.wait_until(lock, ask);
      else
        news_.wait(lock);
      continue;
    }
    while ((!limits_.interrupted || instant() < ask) && run_one(lock, 0)) post(lock);
    if (!over()) turn(lock, limits_.interrupted ? nanoseconds(kInterrupts) : kIdle);
  }
  stats_.wait_ns += static_cast<std::uint64_t>(now_ns() - begin);
}

Status Runner::wait(Job& job) {
  Lock lock(mutex_);
  block(lock,
        [&] { return life_ == Life::kOver || (life_ == Life::kOpen && job.state == Job::State::kDone); });
  return verdict();
}

bool Runner::owes_notes() const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
    return &p != &at(member_.me) && !p.gone && (p.told_done < done_ || p.out_busy);
  });
}

Status Runner::agree() {
  Lock lock(mutex_);
  if (life_ != Life::kOpen) {
    block(lock, [&] { return life_ == Life::kOver; });
    return verdict();
  }
  if (!watching()) begin_watch();
  agreeing_ = true;
  agreed_ = false;
  agreeing_since_ = instant();
  ++done_;
  settle();
  post_notes_ = true;
  nudge();
  block(lock, [&] { return life_ == Life::kOver || agreed_; });
  // Without lanes nobody sends it later. A peer that takes nothing is waited for in the rounds to come.
  for (int tries = 0; lanes_ == 0 && tries < 50 && life_ == Life::kOpen && owes_notes(); ++tries)
    turn(lock, milliseconds(1));
  agreeing_ = false;
  return agreed_ ? Status{} : verdict();
}

Status Runner::status() const {
  const Lock lock(mutex_);
  return verdict();
}

// ---- Lanes

bool Runner::run_one(Lock& lock, int lane) {
  if (ready_.empty() || life_ != Life::kOpen) return false;
  const Task task = ready_.pop();
  const Step& step = task.job->unit->program().steps[static_cast<std::size_t>(task.step)];
  ++running_;
  lock.unlock();
  const std::int64_t begin = now_ns();
  const Status status = task.job->unit->run(step, lane);
  const std::int64_t end = now_ns();
  lock.lock();
  --running_;
  note(*task.job, step, lane + 1, begin, end);
  const auto spent = static_cast<std::uint64_t>(end - begin);
  if (step.kind == StepKind::kEncode || step.kind == StepKind::kOwn) stats_.encode_ns += spent;
  if (step.kind == StepKind::kMerge || step.kind == StepKind::kStore) stats_.merge_ns += spent;
  if (life_ != Life::kOpen) {
    nudge();
    return true;
  }
  if (status.ok())
    finish(*task.job, step);
  else
    fail(Finding::kAccused, status);
  return true;
}

void Runner::compute(int lane) {
  Lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stop_ || (!ready_.empty() && life_ == Life::kOpen); });
    if (stop_) return;
    run_one(lock, lane);
  }
}

void Runner::communicate() {
  Lock lock(mutex_);
  while (!stop_) turn(lock, kIdle);
}

// Hands what is ready to the transport, in order.
void Runner::post(Lock& lock) {
  while (!cards_to_send_.empty() && life_ == Life::kOpen) {
    Job& job = *cards_to_send_.pop();
    lock.unlock();
    for (Rank r = 0; r < member_.world; ++r)
      if (r != member_.me)  // a peer that is gone is found out by what is awaited from it
        (void)transport_->send(r, kControlChannel, {job.card_frame.get(), job.card_bytes},
                               control_op(kTell, r));
    lock.lock();
  }
  while (!post_.empty() && life_ == Life::kOpen) {
    const Task task = post_.pop();
    Job& job = *task.job;
    const Step& step = job.unit->program().steps[static_cast<std::size_t>(task.step)];
    const bool sends = step.kind == StepKind::kSend;
    job.posted_ns[static_cast<std::size_t>(task.step)] = now_ns();
    lock.unlock();
    const OpId op = step_op(job, task.step);
    const Channel channel = job.unit->channel(step.part);
    const ByteView out = sends ? job.unit->outgoing(step) : ByteView{};
    Status status = sends ? transport_->send(step.peer, channel, out, op)
                          : transport_->recv(step.peer, channel, job.unit->incoming(step), op);
    lock.lock();
    if (!status.ok()) {
      complete({op, 0, std::move(status)});
      continue;
    }
    if (sends) {
      at(step.peer).sent += out.size();
      ++stats_.frames_sent;
      stats_.bytes_sent += out.size();
      release_next(job, step);
    }
  }
}

// One turn of the communication lane: posts, waits for the transport, takes what it completed.
void Runner::turn(Lock& lock, nanoseconds wait) {
  do {  // both let go of the lock: what came meanwhile woke nobody
    post(lock);
    flush_outboxes(lock);
  } while (life_ == Life::kOpen && (!post_.empty() || !cards_to_send_.empty() || post_notes_));
  if (life_ == Life::kParting) {
    part();
    if (parted()) return;
    wait = std::min<nanoseconds>(wait, milliseconds(10));
  } else if (watching()) {
    wait = std::clamp<nanoseconds>(look_at_ - instant(), nanoseconds(0), wait);
  }
  if (stop_) return;
  polling_ = true;
  lock.unlock();
  const std::size_t count = transport_->poll(completions_, wait);
  lock.lock();
  polling_ = false;
  for (std::size_t k = 0; k < count; ++k) complete(completions_[k]);
  if (!watching()) return;
  if (const Instant now = instant(); now >= look_at_) look_at_ = watch(now);
}

void Runner::complete(const Completion& done) {
  if ((done.op & kControlBit) != 0) return complete_control(done);
  Job& job = *jobs_[done.op >> 32];
  const auto s = static_cast<std::size_t>(done.op & 0xffffffffU);
  const Step& step = job.unit->program().steps[s];
  const std::int64_t begin = std::exchange(job.posted_ns[s], 0);
  const std::int64_t end = now_ns();
  if (step.kind == StepKind::kSend) stats_.send_ns += static_cast<std::uint64_t>(end - begin);
  if (life_ != Life::kOpen) return;
  if (!done.status.ok()) {
    if (done.status.code() == Code::kPeerLost)
      return fail(lost(done.status), {Code::kPeerLost, done.status.what(), step.peer});
    const bool too_long = done.status.code() == Code::kTooSmall;
    // Where frames have tags, one that is too long to be looked at may be anybody's.
    const Rank sender = too_long && member_.tags != nullptr ? Status::kNoPeer : step.peer;
    return fail(Finding::kAccused,
                {too_long ? Code::kCorrupt : done.status.code(), done.status.what(), sender});
  }
  if (step.kind == StepKind::kRecv) {
    job.unit->received(step, done.bytes);
    hear(at(step.peer), instant(), true);
  }
  note(job, step, 0, begin, end);
  finish(job, step);
}

// ---- Numbers

SessionStats Runner::stats() const {
  const Lock lock(mutex_);
  return stats_;
}

void Runner::end_round(bool dropped) {
  const Lock lock(mutex_);
  ++(dropped ? stats_.rounds_dropped : stats_.rounds);
  round_open_ = false;
}

void Runner::trace(bool on) {
  const Lock lock(mutex_);
  tracing_ = on;
  if (on) events_.reserve(kTraceEvents);
}

void Runner::note(const Job& job, const Step& step, int lane, std::int64_t begin, std::int64_t end) {
  if (!tracing_ || step.kind == StepKind::kLoad || step.kind == StepKind::kUnload) return;
  if (events_.size() == kTraceEvents) events_.pop();
  const std::uint64_t bytes = step.slot >= 0 && step.kind != StepKind::kStore && step.kind != StepKind::kMerge
                                  ? job.unit->outgoing(step).size()
                                  : 0;
  events_.push({op_name(step.kind), round_, job.unit->channel(step.part) - 1, step.chunk, step.peer, lane,
                begin, end, bytes});
}

std::vector<TraceEvent> Runner::take_trace() {
  const Lock lock(mutex_);
  std::vector<TraceEvent> out;
  out.reserve(events_.size());
  while (!events_.empty()) out.push_back(events_.pop());
  return out;
}

}  // namespace tithe::engine
