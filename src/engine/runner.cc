// SPDX-License-Identifier: Apache-2.0
// Who sleeps, and who wakes it. All that these conditions read changes under mutex_.
//
//   compute lane    on work_, until a step is ready or the runner stops. hand_over() wakes one for each step, ~Runner
//                   all
//   caller          on news_, until its job is done, the round is agreed or the session is over; ~Runner until nobody
//                   parts. release() and finish() wake it for a job, settle_round() and take_farewell() for a round,
//                   part() for the end. With `interrupted` it also wakes by itself
//   communication   in poll(), until something completes, wake() is called or its clock is over. Who gives it work
//   lane            calls nudge(): hand_over (sends, receives, cards), agree (done), fail (farewells), run_one (the
//                   last step of a session that parts); ~Runner calls wake() itself
//
// A nudge is never lost: turn() looks at all queues and sets polling_ without letting go of mutex_ between. Before
// that, who adds work is seen by the look; after it, wake() ends also a poll that has not begun yet (Transport::wake).
// One wake is enough for a poll, so the first nudge takes polling_ back. What the lane gives to itself while it
// completes operations (answers, notes) is seen in its next turn.
#include "engine/runner.h"

#include <algorithm>

#include "engine/operations.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kIdle = std::chrono::hours(1);
constexpr milliseconds kInterrupts{100};  // how often a caller that waits is asked

}  // namespace

Runner::Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, Patience limits)
    : member_(member),
      lanes_(lanes),
      limits_(std::move(limits)),
      peers_(static_cast<std::size_t>(member.world)),
      parting_(member_, limits_.timeout),
      transport_(std::move(transport)),
      liveness_(member_, limits_, peers_, queue_, rounds_, *transport_),
      completions_(64) {
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
      while (parting_.parting()) turn(lock, milliseconds(10));
    else
      news_.wait(lock, [&] { return !parting_.parting(); });
    stop_ = true;
    work_.notify_all();
    transport_->wake();
  }
  for (std::thread& t : threads_) t.join();
}

// ---- Jobs

Job& Runner::add(std::unique_ptr<Unit> unit, Card card) {
  const Lock lock(mutex_);
  Job& job = queue_.add(std::move(unit), std::move(card));
  job.card_frame = make_arena(kControlBytes);
  job.card_bytes = write_card(job.card, voice(), {job.card_frame.get(), kControlBytes});
  return job;
}

Status Runner::start(Job& job, std::span<const Tensor> bucket, std::uint32_t round) {
  const Lock lock(mutex_);
  if (!parting_.open()) return parting_.verdict();
  rounds_.begin(round);
  for (Rank r = 0; r < member_.world; ++r)  // it ends this session now, and not when something is missed
    if (at(r).leaves) {
      fail({Finding::kLeft, {Code::kPeerLost, parting_.said(r)->what, r}, r});
      return {};
    }
  job.unit->begin(bucket, round);
  if (!watching()) liveness_.begin();
  queue_.begin(job, instant());
  recorder_.stats().values += job.unit->values();
  release(job);
  hand_over();
  nudge();  // whatever is to be done, there is somebody to listen for now
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
        return fail({lost(p.why_gone), {Code::kPeerLost, p.why_gone.what(), r}});
      else
        return;
    }
    if (const Status s = compare_cards(all); !s.ok()) return fail({Finding::kAccused, s});
    job.agreed = true;
    for (Rank r = 0; r < member_.world; ++r)
      if (r != member_.me) {
        at(r).cards.pop();
        ++at(r).first_card;
      }
  }
  queue_.run(job);
  if (job.state == Job::State::kDone) news_.notify_all();
}

void Runner::finish(const Task& task) {
  if (queue_.finished(task)) news_.notify_all();
}

void Runner::hand_over() {
  for (std::size_t n = queue_.take_fresh(); n > 0; --n) work_.notify_one();
  if (queue_.has_mail()) nudge();
}

void Runner::nudge() {
  if (std::exchange(polling_, false)) transport_->wake();
}

// ---- Callers that wait

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
  Instant ask = instant() + kInterrupts;
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
  recorder_.stats().wait_ns += static_cast<std::uint64_t>(now_ns() - begin);
}

Status Runner::wait(Job& job) {
  Lock lock(mutex_);
  block(lock, [&] { return parting_.over() || (parting_.open() && job.state == Job::State::kDone); });
  return parting_.verdict();
}

Status Runner::agree() {
  Lock lock(mutex_);
  if (!parting_.open()) {
    block(lock, [&] { return parting_.over(); });
    return parting_.verdict();
  }
  if (!watching()) liveness_.begin();
  rounds_.end_work(instant());
  settle_round();
  notes_ = true;
  nudge();
  block(lock, [&] { return parting_.over() || rounds_.agreed(); });
  // Without lanes nobody sends it later. A peer that takes nothing is waited for in the rounds to come.
  for (int tries = 0; lanes_ == 0 && tries < 50 && parting_.open() && owes_notes(); ++tries)
    turn(lock, milliseconds(1));
  rounds_.stop_waiting();
  return rounds_.agreed() ? Status{} : parting_.verdict();
}

Status Runner::status() const {
  const Lock lock(mutex_);
  return parting_.verdict();
}

// ---- Lanes

bool Runner::run_one(Lock& lock, int lane) {
  if (queue_.compute().empty() || !parting_.open()) return false;
  const Task task = queue_.compute().pop();
  ++running_;
  lock.unlock();
  const std::int64_t begin = now_ns();
  const Status status = task.job->unit->run(task.what(), lane);
  const std::int64_t end = now_ns();
  lock.lock();
  --running_;
  recorder_.note(task, rounds_.round(), lane + 1, begin, end);
  if (!parting_.open()) {
    nudge();
  } else if (!status.ok()) {
    fail({Finding::kAccused, status});
  } else {
    finish(task);
    hand_over();
  }
  return true;
}

void Runner::compute(int lane) {
  Lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stop_ || (!queue_.compute().empty() && parting_.open()); });
    if (stop_) return;
    run_one(lock, lane);
  }
}

void Runner::communicate() {
  Lock lock(mutex_);
  while (!stop_) turn(lock, kIdle);
}

// A peer that is gone is found out by what is awaited from it.
void Runner::show_card(Job& job) {
  for (Rank r = 0; r < member_.world; ++r)
    if (r != member_.me)
      (void)transport_->send(r, kControlChannel, {job.card_frame.get(), job.card_bytes},
                             control_op(kTell, r));
}

// Hands what is ready to the transport, in order.
void Runner::post(Lock& lock) {
  while (!queue_.cards().empty() && parting_.open()) {
    Job& job = *queue_.cards().pop();
    lock.unlock();
    show_card(job);
    lock.lock();
  }
  while (!queue_.post().empty() && parting_.open()) {
    const Task task = queue_.post().pop();
    const Step& step = task.what();
    Unit& unit = *task.job->unit;
    const bool sends = step.kind == StepKind::kSend;
    task.job->posted_ns[static_cast<std::size_t>(task.step)] = now_ns();
    lock.unlock();
    const OpId op = step_op(*task.job, task.step);
    const Channel channel = unit.channel(step.part);
    const ByteView out = sends ? unit.outgoing(step) : ByteView{};
    Status status = sends ? transport_->send(step.peer, channel, out, op)
                          : transport_->recv(step.peer, channel, unit.incoming(step), op);
    lock.lock();
    if (!status.ok()) {
      complete({op, 0, std::move(status)});
    } else if (sends) {
      at(step.peer).sent += out.size();
      ++recorder_.stats().frames_sent;
      recorder_.stats().bytes_sent += out.size();
      queue_.posted(task);
      hand_over();
    }
  }
}

// One turn of the communication lane: posts, waits for the transport, takes what it completed.
void Runner::turn(Lock& lock, nanoseconds wait) {
  do {  // both let go of the lock: what came meanwhile woke nobody
    post(lock);
    send_notes(lock);
  } while (parting_.open() && (queue_.has_mail() || notes_));
  if (parting_.parting()) {
    if (part()) return;
    wait = std::min<nanoseconds>(wait, milliseconds(10));
  } else if (watching()) {
    wait = std::clamp<nanoseconds>(liveness_.next_look() - instant(), nanoseconds(0), wait);
  }
  if (stop_) return;
  polling_ = true;
  lock.unlock();
  const std::size_t count = transport_->poll(completions_, wait);
  lock.lock();
  polling_ = false;
  for (std::size_t k = 0; k < count; ++k) complete(completions_[k]);
  hand_over();
  if (!watching() || instant() < liveness_.next_look()) return;
  if (const std::optional<Trouble> trouble = liveness_.look()) return fail(*trouble);
  notes_ = true;  // it may want to ask
}

void Runner::complete(const Completion& done) {
  if ((done.op & kControlBit) != 0) return complete_control(done);
  const Task task{&queue_.job(done.op >> 32), static_cast<int>(done.op & 0xffffffffU)};
  const Step& step = task.what();
  const std::int64_t begin = std::exchange(task.job->posted_ns[static_cast<std::size_t>(task.step)], 0);
  const std::int64_t end = now_ns();
  if (step.kind == StepKind::kSend) recorder_.stats().send_ns += static_cast<std::uint64_t>(end - begin);
  if (!parting_.open()) return;
  if (!done.status.ok()) {
    if (done.status.code() == Code::kPeerLost || done.status.code() == Code::kTimeout)
      return fail({lost(done.status), {Code::kPeerLost, done.status.what(), step.peer}});
    const bool too_long = done.status.code() == Code::kTooSmall;
    // Where frames have tags, one that is too long to be looked at may be anybody's.
    const Rank sender = too_long && member_.tags != nullptr ? Status::kNoPeer : step.peer;
    return fail(
        {Finding::kAccused, {too_long ? Code::kCorrupt : done.status.code(), done.status.what(), sender}});
  }
  if (step.kind == StepKind::kRecv) {
    task.job->unit->received(step, done.bytes);
    liveness_.hear(at(step.peer), true);
  }
  recorder_.note(task, rounds_.round(), 0, begin, end);
  finish(task);
}

// ---- The end

void Runner::fail(const Trouble& trouble) {
  if (!parting_.open()) return;
  parting_.begin({.finding = trouble.finding,
                  .code = trouble.why.code(),
                  .witness = trouble.witness == Status::kNoPeer ? member_.me : trouble.witness,
                  .blamed = trouble.why.peer(),
                  .round = rounds_.uncommitted(),
                  .unheard = liveness_.unheard(),
                  .what = trouble.why.what()},
                 instant());
  queue_.drop();
  nudge();
}

void Runner::cancel() {
  const Lock lock(mutex_);
  withdraw();
}

void Runner::withdraw() {
  if (!parting_.open()) return;
  parting_.withdraw();
  if (watching())
    fail({Finding::kLeft, {Code::kPeerLost, "it left in the middle of a round", member_.me}});
  else  // nothing of it is under way: whoever needs nothing more of it may go on
    fail({Finding::kLeft, {Code::kCancelled, "it left", member_.me}});
}

// Tells the others and cancels what is in flight, once; then waits for their word. Frames may still be in flight when
// it is over: their memory is the jobs', and the caller's tensors are used by compute steps alone.
bool Runner::part() {
  if (!parting_.told()) {
    parting_.tell(*transport_, peers_, voice(), rounds_.uncommitted());
    for (const auto& job : queue_.jobs())
      for (std::size_t s = 0; s < job->posted_ns.size(); ++s)
        if (job->posted_ns[s] != 0) transport_->cancel(step_op(*job, static_cast<int>(s)));
  }
  if (running_ > 0 || !parting_.settle(instant(), peers_, rounds_.waits())) return false;
  news_.notify_all();
  return true;
}

// ---- Numbers

SessionStats Runner::stats() const {
  const Lock lock(mutex_);
  return recorder_.stats();
}

void Runner::end_round(bool dropped) {
  const Lock lock(mutex_);
  ++(dropped ? recorder_.stats().rounds_dropped : recorder_.stats().rounds);
  rounds_.commit();
}

void Runner::trace(bool on) {
  const Lock lock(mutex_);
  recorder_.trace(on);
}

std::vector<TraceEvent> Runner::take_trace() {
  const Lock lock(mutex_);
  return recorder_.take_trace();
}

}  // namespace tithe::engine
