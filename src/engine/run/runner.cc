// SPDX-License-Identifier: Apache-2.0
// The threads that sleep, and who wakes them. All that these conditions read changes under mutex_; the calls themselves
// are made by Hold, right after the lock was let go of.
//
//   compute lane    on work_, until a step is ready or the runner stops. hand_over() wakes one for each step, but no
//                   more than sleep, and none for what the communication lane runs itself; ~Runner all
//   caller          on news_, until its job is done, or the round is agreed and the others are told so, or the session
//                   is over; ~Runner until nobody parts. done() wakes it for a job that somebody waits for,
//                   settle_round() and take_farewell() for a round, complete_control() for a word that has gone out,
//                   part() for the end of the session. With `interrupted` it also wakes by itself
//   communication   in poll(), until something completes, wake() is called or its clock is over. Givers of work call
//   lane            nudge(): hand_over (sends, receives, cards), end_work (done), fail (farewells), run_some
//                   (the last step of a session that parts); ~Runner calls wake() itself
//
// A nudge is never lost: turn() looks at all queues and sets polling_ without letting go of mutex_ between. Before
// that, added work is seen by the look; after it, wake() ends also a poll that has not begun yet (Transport::wake).
// One wake is enough for a poll, so the first nudge takes polling_ back, and its thread owes the wake: it makes it as
// soon as it lets go. A thread that comes between finds polling_ taken back, and may rely on that. A wake that comes
// late ends the poll after the one that it was for; the lane looks at the queues and polls again. Work that the lane
// gives to itself while it completes operations (answers, notes) is seen in its next turn.
//
// A call is never lost either: a sleeper has looked, under the lock, and whoever changes what it looked at calls after
// the change. Sleepers look again whenever they wake, so a call too many costs only time.
#include "engine/run/runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/run/operations.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kIdle = std::chrono::hours(1);
constexpr milliseconds kInterrupts{100};  // how often a caller that waits is asked
constexpr std::size_t kMostSteps = 32;    // that a lane takes at a time

}  // namespace

Runner::Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, Patience limits,
               const Pacing& pacing, Builder builder)
    : member_(member),
      lanes_(lanes),
      limits_(std::move(limits)),
      peers_(static_cast<std::size_t>(member.world)),
      pacer_(pacing, member.me, member.world),
      parting_(member_, limits_.timeout),
      proposing_(member_),
      transport_(std::move(transport)),
      liveness_(member_, limits_, peers_, queue_, rounds_, *transport_),
      recorder_(member.workers),
      completions_(256),
      taken_(static_cast<std::size_t>(member.workers), std::vector<Task>(kMostSteps)),
      builder_(std::move(builder)) {
  transport_->window(pacing.window);
  posted_.reserve(kMostPosts);  // how many are ready at once depends on what else the machine does
  for (Peer& p : peers_) {
    p.out = make_arena(kControlBytes);
    p.in = make_arena(kControlBytes);
  }
  for (Rank r = 0; r < member_.world; ++r) listen(r);
  if (lanes_ == 0) return;
  try {
    threads_.emplace_back([this] { communicate(); });
    for (int lane = 0; lane < lanes_; ++lane) threads_.emplace_back([this, lane] { compute(lane); });
  } catch (...) {  // no memory for it, or no further thread
    stop();
    throw;
  }
}

Runner::~Runner() {
  cancel();
  {
    Hold hold(*this);
    while (lanes_ > 0 && parting_.parting()) hold.sleep(news_);
  }
  stop();
  aside_.stop();
}

void Runner::stop() {
  {
    const Hold hold(*this);
    stop_ = true;
  }
  work_.notify_all();
  transport_->wake();
  for (std::thread& t : threads_) t.join();
}

// ---- The lock

void Runner::Hold::let_go() {
  const Calls calls = std::exchange(runner_.calls_, {});
  lock_.unlock();
  if (calls.news) runner_.news_.notify_all();
  if (calls.poll) runner_.transport_->wake();
  for (std::size_t n = calls.lanes; n > 0; --n) runner_.work_.notify_one();
}

void Runner::Hold::sleep(std::condition_variable& until, const Instant* at_most) {
  const Calls& due = runner_.calls_;
  if (due.news || due.poll || due.lanes > 0) {
    let_go();
    take();
  } else if (at_most != nullptr) {
    until.wait_until(lock_, *at_most);
  } else {
    until.wait(lock_);
  }
}

// ---- Jobs

Job& Runner::add(std::unique_ptr<Unit> unit, Card card) {
  const Hold hold(*this);
  Job& job = queue_.add(std::move(unit), std::move(card));
  if (pacer_.on()) {
    std::vector<std::size_t> frames(peers_.size());
    for (const Step& step : job.unit->program().steps)
      if (step.kind == StepKind::kSend) ++frames[static_cast<std::size_t>(step.peer)];
    pacer_.expect(frames, job.unit->program().parts.size());
  }
  job.card_frame = make_arena(kControlBytes);
  job.card_bytes = write_card(job.card, voice(), {job.card_frame.get(), kControlBytes});
  job.labels = recorder_.labels(*job.unit);
  return job;
}

void Runner::show(Job& job) {
  const Hold hold(*this);
  queue_.show(job);
  nudge();
}

std::unique_ptr<Unit> Runner::forget(Job& job) {
  const Hold hold(*this);
  std::unique_ptr<Unit> unit = queue_.forget(job);
  if (shown_ == 0) job.card_frame.reset();
  return unit;
}

Status Runner::start(Job& job, std::span<const Tensor> bucket, std::uint32_t round) {
  const Hold hold(*this);
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
  queue_.at(in_ns(job.began));
  match_cards();
  if (parting_.open()) release(job);
  hand_over();
  nudge();  // whatever is to be done, there is somebody to listen for now
  return {};
}

// Cards come in the order of their numbers from every rank, so they are compared in that order, whenever a layout's
// first round begins.
void Runner::match_cards() {
  for (; matched_ < queue_.jobs().size(); ++matched_) {
    Job& job = queue_.job(matched_);
    if (!job.shown) return;
    std::vector<Card> all;
    for (Rank r = 0; r < member_.world; ++r) {
      Peer& p = at(r);
      if (r != member_.me && p.cards.empty()) return;
      all.push_back(r == member_.me ? job.card : p.cards.front());
    }
    if (const Status s = compare_cards(all); !s.ok()) return fail({Finding::kAccused, s});
    job.agreed = true;
    for (Rank r = 0; r < member_.world; ++r)
      if (r != member_.me) {
        at(r).cards.pop();
        ++at(r).first_card;
      }
  }
}

// Lets a job run once the cards of all ranks for its layout are there and equal.
void Runner::release(Job& job) {
  if (job.state != Job::State::kAwaitsCards) return;
  for (Rank r = 0; r < member_.world && !job.agreed; ++r) {
    const Peer& p = at(r);
    if (r != member_.me && p.gone && p.first_card + p.cards.size() <= job.number)  // nor will it come
      return fail({lost(p.why_gone), {Code::kPeerLost, p.why_gone.what(), r}});
  }
  if (!job.agreed) return;
  queue_.run(job);
  if (job.state == Job::State::kDone) done(job);
}

void Runner::finish(const Task& task) {
  if (!queue_.finished(task)) return;
  recorder_.bucket(*task.job, rounds_.round(), in_ns(task.job->began), trace_ns());
  done(*task.job);
}

void Runner::done(const Job& job) {
  if (job.awaited > 0) tell_callers();
  end_work();
}

// runs_on: who calls takes steps next, so it needs nobody for those that weigh little.
void Runner::hand_over(bool runs_on) {
  const std::size_t fresh = queue_.take_fresh();
  if (!runs_itself())
    calls_.lanes = std::min(calls_.lanes + fresh, static_cast<std::size_t>(idle_));
  else if (!runs_on)
    nudge();
  if (has_mail()) nudge();
}

bool Runner::runs_itself() const { return lanes_ > 0 && queue_.light(); }

void Runner::nudge() {
  if (std::exchange(polling_, false)) calls_.poll = true;
}

// ---- Callers that wait

// Asks the caller's own question, without the lock: it may need a lock of the caller's (Python's).
bool Runner::interrupted(Hold& hold) {
  if (!limits_.interrupted) return false;
  hold.let_go();
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
    starved_ = parting_.open();
    nudge();
    hold.let_go();
    std::this_thread::sleep_for(milliseconds(1));  // there may be some again, for its end
    hold.take();
  }
}

void Runner::block(Hold& hold, const std::function<bool()>& over) {
  const std::int64_t begin = now_ns();
  Instant ask = instant() + kInterrupts;
  ++callers_;
  while (!over()) {
    if (cancels_) {
      hold.sleep(news_);
      continue;
    }
    if (limits_.interrupted && instant() >= ask) {
      ask = instant() + kInterrupts;
      if (interrupted(hold)) withdraw();
      continue;
    }
    if (lanes_ > 0) {
      hold.sleep(news_, limits_.interrupted ? &ask : nullptr);
      continue;
    }
    guarded(hold, [&] {
      while ((!limits_.interrupted || instant() < ask) && run_some(hold, 0)) post(hold);
      if (!over()) turn(hold, limits_.interrupted ? nanoseconds(kInterrupts) : kIdle);
    });
  }
  --callers_;
  recorder_.stats().wait_ns += static_cast<std::uint64_t>(now_ns() - begin);
}

Status Runner::wait(Job& job) {
  Hold hold(*this);
  const std::int64_t begin = trace_ns();
  ++job.awaited;
  block(hold, [&] { return parting_.over() || (parting_.open() && job.state == Job::State::kDone); });
  --job.awaited;
  recorder_.call("wait", rounds_.round(), begin, trace_ns());
  return parting_.verdict();
}

Status Runner::agree() {
  Hold hold(*this);
  const std::int64_t begin = trace_ns();
  const std::uint64_t before = rounds_.ended();
  rounds_.close();
  end_work();
  block(hold, [&] { return parting_.over() || rounds_.agreed(); });
  recorder_.call("wait", rounds_.round(), begin,
                 rounds_.ended() > before ? std::max(begin, in_ns(rounds_.since())) : trace_ns());
  // The others need this rank's word, and after this the caller's process may end at any moment. Nobody looks at a peer
  // of an agreed round, so one that takes nothing is waited for as long as its silence would be.
  const Instant enough = instant() + limits_.timeout;
  Instant ask = instant() + kInterrupts;
  ++callers_;
  while (parting_.open() && owes_notes() && instant() < enough) {
    if (instant() >= ask) {
      ask = instant() + kInterrupts;
      if (interrupted(hold)) withdraw();
    } else if (lanes_ == 0) {
      turn(hold, kInterrupts);
    } else {
      hold.sleep(news_, &ask);
    }
  }
  --callers_;
  rounds_.stop_waiting();
  return rounds_.agreed() ? Status{} : parting_.verdict();
}

Status Runner::status() const {
  const std::lock_guard lock(mutex_);
  return parting_.verdict();
}

Status Runner::present() const {
  const std::lock_guard lock(mutex_);
  TITHE_TRY(parting_.verdict());
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r].gone && !peers_[r].leaves)
      return {Code::kPeerLost, peers_[r].why_gone.what(), static_cast<Rank>(r)};
  return {};
}

// ---- Lanes

// Runs what is next: one step, or several that weigh little. All that they make ready is handed over in one go.
bool Runner::run_some(Hold& hold, int lane) {
  if (!parting_.open()) return false;
  std::vector<Task>& taken = taken_[static_cast<std::size_t>(lane)];
  const std::span<const Task> tasks(taken.data(), queue_.take(taken, std::max(1, lanes_)));
  if (tasks.empty()) return false;
  const std::uint32_t round = rounds_.round();
  ++running_;
  hold.let_go();
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
  if (!parting_.open()) {
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
                      "with {} values (docs/flow.md, 'Memory')",
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
  pacer_.drop();
  nudge();
}

// Without lanes nobody else would tell the others, unless another thread waits here already.
void Runner::cancel() {
  Hold hold(*this);
  withdraw();
  if (lanes_ > 0 || callers_ > 0 || cancels_) return;
  cancels_ = true;
  while (parting_.parting()) turn(hold, milliseconds(10));
  cancels_ = false;
  tell_callers();
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
    // A peer that does not hear this rank asked it again and again. If nothing of that came, neither hears the other.
    if (const Rank witness = parting_.missed_by();
        witness >= 0 && !at(witness).gone && transport_->now() - at(witness).spoke >= limits_.timeout / 2)
      parting_.miss(witness);
    parting_.tell(*transport_, peers_, voice(), rounds_.uncommitted());
    // A withdrawn message keeps its place on its channel (Transport, in_place): no peer takes a later frame for it.
    for (const auto& job : queue_.jobs())
      for (std::size_t s = 0; s < job->posted_ns.size(); ++s)
        if (job->posted_ns[s] != 0) transport_->cancel(step_op(*job, static_cast<int>(s)));
  }
  parting_.relay(*transport_, peers_, voice());
  if (running_ > 0 || !parting_.settle(instant(), peers_, rounds_.waits())) return false;
  tell_callers();
  return true;
}

// ---- Numbers

SessionStats Runner::stats() const {
  const std::lock_guard lock(mutex_);
  return recorder_.total();
}

bool Runner::end_round(bool dropped, std::int64_t began_ns) {
  const std::lock_guard lock(mutex_);
  ++(dropped ? recorder_.stats().rounds_dropped : recorder_.stats().rounds);
  rounds_.commit();
  recorder_.call("commit", rounds_.round(), began_ns, trace_ns());
  return proposing_.switch_over(rounds_.ended());
}

void Runner::take_back(bool dropped) {
  const std::lock_guard lock(mutex_);
  --(dropped ? recorder_.stats().rounds_dropped : recorder_.stats().rounds);
  rounds_.take_back();
}

void Runner::mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns) {
  if (!recorder_.on() || op.empty()) return;
  const std::lock_guard lock(mutex_);
  recorder_.call(recorder_.name(op), rounds_.uncommitted(), begin_ns, end_ns);
}

}  // namespace tithe::engine
