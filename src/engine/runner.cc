// SPDX-License-Identifier: Apache-2.0
#include "engine/runner.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr Channel kControlChannel = 0;
constexpr std::size_t kTraceEvents = 65536;
constexpr nanoseconds kIdle = std::chrono::hours(1);
constexpr nanoseconds kCancelPatience = std::chrono::seconds(2);

// Operations: control ones have the top bit set.
constexpr OpId kControlBit = OpId{1} << 63;
enum ControlOp : OpId { kHear = 0, kTell = 1, kFarewellOp = 2 };
OpId control_op(ControlOp op, Rank peer) {
  return kControlBit | static_cast<OpId>(op) << 32 | static_cast<OpId>(peer);
}
OpId step_op(const Job& job, int step) { return OpId{job.number} << 32 | static_cast<OpId>(step); }

std::int64_t now_ns() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

Runner::Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, nanoseconds timeout)
    : member_(member),
      lanes_(lanes),
      timeout_(timeout),
      transport_(std::move(transport)),
      last_progress_(Clock::now()),
      completions_(64),
      cards_(static_cast<std::size_t>(member.world)),
      gone_(static_cast<std::size_t>(member.world)),
      has_farewell_(static_cast<std::size_t>(member.world)),
      farewells_(static_cast<std::size_t>(member.world)),
      farewell_frame_(make_arena(kControlBytes)) {
  for (Rank r = 0; r < member_.world; ++r) inbox_.push_back(make_arena(kControlBytes));
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

void Runner::listen(Rank peer) {
  if (peer == member_.me || gone_[static_cast<std::size_t>(peer)]) return;
  const Bytes into(inbox_[static_cast<std::size_t>(peer)].get(), kControlBytes);
  if (!transport_->recv(peer, kControlChannel, into, control_op(kHear, peer)).ok())
    gone_[static_cast<std::size_t>(peer)] = true;
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
  job->card_bytes = write_card(job->card, member_.me, {job->card_frame.get(), kControlBytes});
  capacity_ += steps;
  ready_.reserve(capacity_);
  post_.reserve(capacity_);
  jobs_.push_back(std::move(job));
  return *jobs_.back();
}

Status Runner::start(Job& job, std::span<const Tensor> bucket, std::uint32_t round) {
  const Lock lock(mutex_);
  round_ = round;
  round_open_ = true;
  if (put_off_ != Status::kNoPeer) {
    const Farewell& farewell = farewells_[static_cast<std::size_t>(put_off_)];
    if (farewell.round <= round) heard(put_off_, farewell);
  }
  if (life_ != Life::kOpen) return verdict();
  job.unit->begin(bucket, round);
  for (std::size_t s = 0; s < job.waits.size(); ++s) job.waits[s] = job.unit->program().steps[s].waits;
  job.left = job.waits.size();
  job.state = Job::State::kAwaitsCards;
  if (active_++ == 0) last_progress_ = Clock::now();
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
      const std::vector<Card>& theirs = cards_[static_cast<std::size_t>(r)];
      if (r == member_.me)
        all.push_back(job.card);
      else if (theirs.size() > job.number)
        all.push_back(theirs[job.number]);
      else if (gone_[static_cast<std::size_t>(
                   r)])  // its farewell came before this job, and nothing else will
        return fail({Code::kPeerLost, "it left before this layout was agreed on", r});
      else
        return;
    }
    if (Status s = compare_cards(all); !s.ok()) return fail(std::move(s));
    job.agreed = true;
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
  last_progress_ = Clock::now();
  if (step.kind != StepKind::kSend)
    release_next(job, step);  // a send's followers waited for its posting only
  if (--job.left > 0) return;
  job.unit->end();
  job.state = Job::State::kDone;
  --active_;
  news_.notify_all();
}

Status Runner::wait(Job& job) {
  Lock lock(mutex_);
  const std::int64_t begin = now_ns();
  if (lanes_ > 0) {
    news_.wait(lock, [&] {
      return life_ == Life::kOver || (life_ == Life::kOpen && job.state == Job::State::kDone);
    });
  } else {
    last_progress_ = Clock::now();
    while (life_ != Life::kOver && !(life_ == Life::kOpen && job.state == Job::State::kDone)) {
      while (run_one(lock, 0)) post(lock);
      if (job.state != Job::State::kDone || life_ != Life::kOpen) turn(lock, kIdle);
    }
  }
  stats_.wait_ns += static_cast<std::uint64_t>(now_ns() - begin);
  return verdict();
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
  Status status = task.job->unit->run(step, lane);
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
    fail(std::move(status));
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
    ++in_flight_;
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
      ++stats_.frames_sent;
      stats_.bytes_sent += out.size();
      release_next(job, step);
    }
  }
}

// One turn of the communication lane: posts, waits for the transport, takes what it completed.
void Runner::turn(Lock& lock, nanoseconds wait) {
  post(lock);
  if (life_ == Life::kParting) {
    part();
    if (parted()) return;
    wait = std::min<nanoseconds>(wait, milliseconds(10));
  } else if (life_ == Life::kOpen && active_ > 0) {
    wait = std::min<nanoseconds>(wait, timeout_);
  }
  if (stop_) return;
  polling_ = true;
  lock.unlock();
  const std::size_t count = transport_->poll(completions_, wait);
  lock.lock();
  polling_ = false;
  for (std::size_t k = 0; k < count; ++k) complete(completions_[k]);
  check_timeout();
}

void Runner::complete(const Completion& done) {
  if ((done.op & kControlBit) != 0) return complete_control(done);
  Job& job = *jobs_[done.op >> 32];
  const auto s = static_cast<std::size_t>(done.op & 0xffffffffU);
  const Step& step = job.unit->program().steps[s];
  const std::int64_t begin = std::exchange(job.posted_ns[s], 0);
  --in_flight_;
  const std::int64_t end = now_ns();
  if (step.kind == StepKind::kSend) stats_.send_ns += static_cast<std::uint64_t>(end - begin);
  if (life_ != Life::kOpen) return;
  if (!done.status.ok()) {
    const Code code = done.status.code() == Code::kTooSmall ? Code::kCorrupt : done.status.code();
    return fail({code, done.status.what(), step.peer});
  }
  if (step.kind == StepKind::kRecv) job.unit->received(step, done.bytes);
  note(job, step, 0, begin, end);
  finish(job, step);
}

// ---- Watching and telling

std::vector<Rank> Runner::awaited() const {
  std::vector<Rank> peers;
  const auto add = [&](Rank r) {
    if (std::find(peers.begin(), peers.end(), r) == peers.end()) peers.push_back(r);
  };
  for (const bool receives : {true, false})  // who owes this rank something comes first
    for (const auto& job : jobs_) {
      if (job->state == Job::State::kAwaitsCards && receives)
        for (Rank r = 0; r < member_.world; ++r)
          if (r != member_.me && cards_[static_cast<std::size_t>(r)].size() <= job->number) add(r);
      if (job->state != Job::State::kRuns) continue;
      const auto& steps = job->unit->program().steps;
      for (std::size_t s = 0; s < steps.size(); ++s)
        if (job->posted_ns[s] != 0 && (steps[s].kind == StepKind::kRecv) == receives) add(steps[s].peer);
    }
  return peers;
}

void Runner::check_timeout() {
  if (life_ != Life::kOpen || active_ == 0 || running_ > 0 || !ready_.empty() || !post_.empty()) return;
  if (Clock::now() - last_progress_ < timeout_) return;
  const std::vector<Rank> peers = awaited();
  if (peers.empty()) return;
  std::string list;
  for (const Rank r : peers) fmt::format_to(std::back_inserter(list), "{}{}", list.empty() ? "" : ", ", r);
  fail({Code::kTimeout,
        fmt::format("nothing from rank {} for {} ms", list,
                    std::chrono::duration_cast<milliseconds>(timeout_).count()),
        peers[0]});
}

void Runner::complete_control(const Completion& done) {
  const auto peer = static_cast<Rank>(done.op & 0xffffffffU);
  const auto kind = static_cast<ControlOp>(done.op >> 32 & 0x7fffffffU);
  if (kind == kFarewellOp) --farewell_sends_;
  if (kind != kHear) return;
  if (!done.status.ok()) {
    gone_[static_cast<std::size_t>(peer)] = true;
    // A peer whose card is missing has no other operation that would tell.
    if (life_ == Life::kOpen && done.status.code() == Code::kPeerLost)
      for (const auto& job : jobs_)
        if (job->state == Job::State::kAwaitsCards &&
            cards_[static_cast<std::size_t>(peer)].size() <= job->number)
          return fail({Code::kPeerLost, done.status.what(), peer});
    return;
  }
  last_progress_ = Clock::now();
  const Result<Control> control =
      read_control(ByteView(inbox_[static_cast<std::size_t>(peer)].get(), done.bytes));
  listen(peer);
  if (!control.ok()) return fail({control.status().code(), control.status().what(), peer});
  if (!control->is_card) return heard(peer, control->farewell);
  cards_[static_cast<std::size_t>(peer)].push_back(control->card);
  if (life_ != Life::kOpen) return;
  for (const auto& job : jobs_) release(*job);
}

void Runner::heard(Rank peer, const Farewell& farewell) {
  has_farewell_[static_cast<std::size_t>(peer)] = true;
  farewells_[static_cast<std::size_t>(peer)] = farewell;
  if (life_ != Life::kOpen) return;
  if (round_open_ && farewell.round > round_) {  // that peer has finished the round at hand: so may this rank
    put_off_ = peer;
    return;
  }
  put_off_ = Status::kNoPeer;
  round_ = std::max(round_, farewell.round);
  Rank blamed = farewell.blamed;
  if (farewell.code == Code::kTimeout)
    if (const std::vector<Rank> peers = awaited(); !peers.empty()) blamed = peers[0];
  fail({farewell.code, farewell.what, blamed});
}

void Runner::fail(Status why) {
  if (life_ != Life::kOpen) return;
  life_ = Life::kParting;
  why_ = std::move(why);
  parting_since_ = Clock::now();
  parting_begun_ = false;
  ready_.clear();
  post_.clear();
  cards_to_send_.clear();
  nudge();
}

void Runner::cancel() {
  const Lock lock(mutex_);
  if (active_ == 0) {
    if (life_ == Life::kOpen) {
      life_ = Life::kOver;
      verdict_ = {Code::kCancelled, "the session was cancelled"};
    }
    return;
  }
  fail({Code::kCancelled, "the session was cancelled", member_.me});
}

// Cancels what is in flight and tells the others, once.
void Runner::part() {
  if (parting_begun_) return;
  parting_begun_ = true;
  Farewell farewell{why_.code(), why_.peer(), round_, why_.what()};
  if (why_.code() == Code::kCancelled)
    farewell = {Code::kPeerLost, member_.me, round_, "it left in the middle of a round"};
  const std::size_t bytes = write_farewell(farewell, member_.me, {farewell_frame_.get(), kControlBytes});
  for (Rank r = 0; r < member_.world; ++r) {
    if (r == member_.me || gone_[static_cast<std::size_t>(r)]) continue;
    if (transport_->send(r, kControlChannel, {farewell_frame_.get(), bytes}, control_op(kFarewellOp, r)).ok())
      ++farewell_sends_;
  }
  for (const auto& job : jobs_)
    for (std::size_t s = 0; s < job->posted_ns.size(); ++s)
      if (job->posted_ns[s] != 0) transport_->cancel(step_op(*job, static_cast<int>(s)));
}

// Whether nothing moves any more, and the others have said what they had to say or had the time for it.
bool Runner::parted() {
  if (running_ > 0) return false;
  const auto since = Clock::now() - parting_since_;
  const bool asks = why_.code() == Code::kTimeout || why_.code() == Code::kPeerLost;
  const nanoseconds grace =
      asks ? std::clamp<nanoseconds>(timeout_ / 4, milliseconds(200), milliseconds(1000)) : milliseconds(200);
  bool heard_all = true;
  const Rank blamed = verdict_of_all().peer();
  for (Rank r = 0; r < member_.world; ++r)
    if (r != member_.me && r != blamed && !has_farewell_[static_cast<std::size_t>(r)] &&
        !gone_[static_cast<std::size_t>(r)])
      heard_all = false;
  const bool quiet = in_flight_ == 0 && farewell_sends_ == 0;
  if (!(quiet && (!asks || heard_all)) && since < grace) return false;
  if (in_flight_ > 0 && since < kCancelPatience) return false;
  verdict_ = verdict_of_all();
  life_ = Life::kOver;
  active_ = 0;
  news_.notify_all();
  return true;
}

// Who blames whom, followed to the end: the messenger of bad news is not the one to name.
Status Runner::verdict_of_all() const {
  Code code = why_.code();
  Rank blamed = why_.peer();
  std::string what = why_.what();
  for (int hops = 0; hops < member_.world && blamed >= 0 && blamed < member_.world; ++hops) {
    const auto b = static_cast<std::size_t>(blamed);
    const bool chained = code == Code::kTimeout || code == Code::kPeerLost;
    if (blamed == member_.me || !chained || !has_farewell_[b]) break;
    const Farewell& f = farewells_[b];
    if (f.blamed < 0 || f.blamed == blamed || f.blamed == member_.me) break;
    code = f.code;
    blamed = f.blamed;
    what = f.what;
  }
  if (code == Code::kCancelled) return {code, what};
  std::string text = fmt::format("round {}: ", round_);
  if (code == Code::kPeerLost)
    fmt::format_to(std::back_inserter(text), "rank {} is gone ({})", blamed, what);
  else if (code == Code::kTimeout)
    fmt::format_to(std::back_inserter(text), "rank {} is silent ({})", blamed, what);
  else
    text += what;
  return {code, text, blamed};
}

Status Runner::verdict() const { return life_ == Life::kOver ? verdict_ : Status{}; }

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
