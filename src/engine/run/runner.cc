// SPDX-License-Identifier: Apache-2.0
// Jobs, failures and statistics. threads.cc has the threads that run the jobs.
#include "engine/run/runner.h"

#include <algorithm>

#include "engine/run/operations.h"

namespace tithe::engine {
namespace {

// The number of steps that a lane takes at a time.
constexpr std::size_t kMostSteps = 32;

}  // namespace

Runner::Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, WaitLimits limits,
               const Pacing& pacing, PlanBuilder builder, Ended ended, ProxyTrigger proxy_trigger)
    : member_(member),
      lanes_(lanes),
      limits_(std::move(limits)),
      peers_(static_cast<std::size_t>(member.world)),
      send_window_(pacing, member.me, member.world),
      order_(member.me, member.world),
      shutdown_(member_, limits_.timeout),
      reconfiguration_(member_),
      transport_(std::move(transport)),
      liveness_(member_, limits_, peers_, queue_, rounds_, order_, *transport_),
      recorder_(member.workers),
      completions_(256),
      taken_(static_cast<std::size_t>(member.workers), std::vector<Task>(kMostSteps)),
      builder_(std::move(builder)),
      ended_(std::move(ended)),
      proxy_trigger_(std::move(proxy_trigger)) {
  transport_->window(pacing.window);
  free_since_ = instant();
  posted_.reserve(kMostPosts);  // so that a batch allocates nothing
  for (Peer& p : peers_) {
    p.out = make_arena(kControlBytes);
    p.in = make_arena(kControlBytes);
  }
  for (Rank r = 0; r < member_.world; ++r) listen(r);
  if (lanes_ == 0) return;
  try {
    threads_.emplace_back([this] { communicate(); });
    for (int lane = 0; lane < lanes_; ++lane) threads_.emplace_back([this, lane] { compute(lane); });
  } catch (...) {  // out of memory, or the system refuses a thread
    stop();
    throw;
  }
}

Runner::~Runner() {
  cancel();
  {
    Hold hold(*this);
    while (lanes_ > 0 && shutdown_.in_progress()) hold.sleep(news_);
  }
  stop();
  background_.stop();
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

// ---- Jobs

Job& Runner::add(std::unique_ptr<Unit> unit, Card card) {
  const Hold hold(*this);
  Job& job = queue_.add(std::move(unit), std::move(card));
  if (send_window_.on()) {
    std::vector<std::size_t> frames(peers_.size());
    for (const Step& step : job.unit->program().steps)
      if (step.kind == StepKind::kSend) ++frames[static_cast<std::size_t>(step.peer)];
    send_window_.expect(frames, job.unit->program().parts.size());
  }
  job.labels = recorder_.labels(*job.unit);
  if (ended_) ends_.reserve(2 * queue_.jobs().size());
  return job;
}

void Runner::write_card_of(Job& job) {
  job.card.job = of_job_;
  job.card_frame = make_arena(kControlBytes);
  job.card_bytes = write_card(job.card, identity(), {job.card_frame.get(), kControlBytes});
}

void Runner::show(Job& job) {
  const Hold hold(*this);
  write_card_of(job);
  queue_.show(job);
  wake_poll();
}

std::unique_ptr<Unit> Runner::forget(Job& job) {
  const Hold hold(*this);
  std::unique_ptr<Unit> unit = queue_.forget(job);
  if (shown_ == 0) job.card_frame.reset();
  return unit;
}

// Begins a round of a job. The entry of the bucket order is sent in the layout's card if the card has not been sent
// yet, otherwise as an announcement if it was not predicted. A peer that has announced its departure cannot complete
// the round, so the session fails now and not at the first missing message.
Status Runner::start(Job& job, std::span<const Tensor> bucket, std::uint32_t round, std::uint64_t ticket) {
  const Hold hold(*this);
  if (!shutdown_.open()) return shutdown_.verdict();
  Announcement entry = entry_of(job.card);
  entry.ended = rounds_.ended();
  entry.place = order_.next_place(rounds_.ended());
  entry.round = round;
  entry.job = of_job_;
  const bool in_card = !job.shown;
  if (in_card) {
    job.card.ended = entry.ended;
    job.card.place = entry.place;
    write_card_of(job);
  }
  job.ticket = ticket;
  rounds_.begin(round);
  for (Rank r = 0; r < member_.world; ++r)
    if (at(r).leaving) {
      fail({Finding::kLeft, {Code::kPeerLost, shutdown_.report_of(r)->what, r}, r});
      return {};
    }
  job.unit->begin(bucket, round);
  if (proxy_trigger_.on()) pending_ = true;
  if (!watching()) liveness_.begin();
  queue_.begin(job, instant());
  recorder_.stats().values += job.unit->values();
  queue_.at(in_ns(job.began));
  match_cards();
  hand_over_entry(entry, in_card);
  if (shutdown_.open()) release(job);
  hand_over();
  wake_poll();  // peers may need this rank's answers from now on
  return {};
}

// Compares the cards of all ranks, layout by layout. Every rank sends cards in the order of their numbers, so the
// front of each queue belongs to layout `matched_`. Agreed cards leave the queues.
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
    if (job_ == 0) job_ = all[0].proposed_job;
    for (Rank r = 0; r < member_.world; ++r)
      if (r != member_.me) {
        at(r).cards.pop();
        ++at(r).first_card;
      }
  }
}

void Runner::hand_over_entry(const Announcement& entry, bool in_card) {
  if (!shutdown_.open()) return;
  if (const Status s = order_.add(entry, in_card); !s.ok()) fail({Finding::kAccused, s});
  if (!order_.has_pending()) return;
  pending_ = true;
  wake_poll();
}

// Starts a job if the cards of all ranks for its layout are equal and the bucket order does not hold the round. Fails
// if the card cannot arrive because the peer is gone.
void Runner::release(Job& job) {
  if (job.state != Job::State::kAwaitsCards) return;
  for (Rank r = 0; r < member_.world && !job.agreed; ++r) {
    const Peer& p = at(r);
    if (r != member_.me && p.gone && p.first_card + p.cards.size() <= job.number)
      return fail({lost(p.why_gone), {Code::kPeerLost, p.why_gone.what(), r}});
  }
  if (!job.agreed || order_.holds()) return;
  queue_.run(job);
  if (job.state == Job::State::kDone) done(job);
}

void Runner::finish(const Task& task) {
  if (!queue_.finished(task)) return;
  if (task.job->unit != nullptr && !task.job->unit->finite()) rounds_.meet_nonfinite();
  recorder_.bucket(*task.job, rounds_.round(), in_ns(task.job->began), trace_ns());
  done(*task.job);
}

void Runner::done(Job& job) {
  if (job.awaited > 0) wake_callers();
  end_ticket(job);
  end_work();
}

// Wakes threads for the steps that became ready. runs_on: the calling thread takes steps next, so light steps need no
// other thread.
void Runner::hand_over(bool runs_on) {
  const std::size_t fresh = queue_.take_fresh();
  if (!runs_itself())
    wakeups_.lanes = std::min(wakeups_.lanes + fresh, static_cast<std::size_t>(idle_));
  else if (!runs_on)
    wake_poll();
  if (has_mail()) wake_poll();
}

bool Runner::runs_itself() const { return lanes_ > 0 && queue_.light(); }

void Runner::wake_poll() {
  if (std::exchange(polling_, false)) wakeups_.poll = true;
}

// ---- The end

// The first failure begins the shutdown; later ones are ignored, because their cause is usually the first one.
void Runner::fail(const Trouble& trouble) {
  if (!shutdown_.open()) return;
  shutdown_.begin({.finding = trouble.finding,
                   .code = trouble.why.code(),
                   .witness = trouble.witness == Status::kNoPeer ? member_.me : trouble.witness,
                   .blamed = trouble.why.peer(),
                   .round = rounds_.uncommitted(),
                   .unheard = liveness_.silent_ranks(),
                   .what = trouble.why.what()},
                  instant());
  queue_.drop();
  send_window_.drop();
  wake_poll();
}

void Runner::withdraw() {
  if (!shutdown_.open()) return;
  shutdown_.withdraw();
  if (watching())
    fail({Finding::kLeft, {Code::kPeerLost, "it left in the middle of a round", member_.me}});
  else  // no round is in progress: peers may continue without this rank
    fail({Finding::kLeft, {Code::kCancelled, "it left", member_.me}});
}

// Sends this rank's report and cancels its operations, once; then waits for the reports of other ranks. Frames may
// still be in flight when the shutdown is over. The jobs own their memory, and only compute steps use the caller's
// tensors.
bool Runner::shut_down() {
  if (!shutdown_.report_sent()) {
    // If a peer reported this rank as silent, this rank has been asking it too. Without an answer for half a timeout,
    // neither rank receives from the other, and this rank reports it in turn.
    if (const Rank witness = shutdown_.silence_witness();
        witness >= 0 && !at(witness).gone &&
        transport_->now() - at(witness).last_message >= limits_.timeout / 2)
      shutdown_.add_silent(witness);
    shutdown_.send_report(*transport_, peers_, identity(), rounds_.uncommitted(), rounds_.agreed_finite());
    // A cancelled message keeps its place on its channel (Transport, in_place), so no peer takes a later frame for
    // it.
    for (const auto& job : queue_.jobs())
      for (std::size_t s = 0; s < job->posted_ns.size(); ++s)
        if (job->posted_ns[s] != 0) transport_->cancel(step_op(*job, static_cast<int>(s)));
  }
  shutdown_.relay(*transport_, peers_, identity());
  if (running_ > 0 || !shutdown_.finish(instant(), peers_, rounds_.waits())) return false;
  wake_callers();
  for (const auto& job : queue_.jobs()) end_ticket(*job);
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
  free_since_ = instant();
  late_since_.reset();
  recorder_.call("commit", rounds_.round(), began_ns, trace_ns());
  return reconfiguration_.switch_over(rounds_.ended());
}

void Runner::take_back(bool dropped) {
  const std::lock_guard lock(mutex_);
  --(dropped ? recorder_.stats().rounds_dropped : recorder_.stats().rounds);
  rounds_.take_back();
  order_.expect_surprise();
}

std::uint64_t Runner::job() const {
  const std::lock_guard lock(mutex_);
  return job_;
}

void Runner::be_of_job(std::uint64_t job, bool restored) {
  const std::lock_guard lock(mutex_);
  of_job_ = job;
  if (restored) order_.expect_surprise();
}

void Runner::mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns) {
  if (!recorder_.on() || op.empty()) return;
  const std::lock_guard lock(mutex_);
  recorder_.call(recorder_.name(op), rounds_.uncommitted(), begin_ns, end_ns);
}

}  // namespace tithe::engine
