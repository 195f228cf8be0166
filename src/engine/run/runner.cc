// SPDX-License-Identifier: Apache-2.0
// Jobs, steps, the turn of the communication lane, and new plans. threads.cc has the threads that run them.
#include "engine/run/runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/run/operations.h"

namespace tithe::engine {
namespace {

using std::chrono::nanoseconds;

// The number of steps that a lane takes at a time.
constexpr std::size_t kMaxSteps = 32;

}  // namespace

Runner::Runner(std::unique_ptr<Transport> transport, const Member& member, int lanes, WaitLimits limits,
               const Pacing& pacing, PlanBuilder builder, Ended ended, ProxyTrigger proxy_trigger)
    : lanes_(lanes),
      builder_(std::move(builder)),
      state_{.member = member,
             .limits = std::move(limits),
             .transport = std::move(transport),
             .send_window = SendWindow(pacing, member.me, member.world),
             .tickets = EndedTickets(std::move(ended)),
             .proxy = ProxyTimer(std::move(proxy_trigger))},
      taken_(static_cast<std::size_t>(member.workers), std::vector<Task>(kMaxSteps)) {
  state_.transport->window(pacing.window);
  state_.proxy.end_round(state_.now());
  control_.listen();
  if (lanes_ == 0) return;
  try {
    threads_.emplace_back([this] { communicate(); });
    for (int lane = 0; lane < lanes_; ++lane) threads_.emplace_back([this, lane] { compute(lane); });
  } catch (...) {  // out of memory, or the system refuses a thread
    stop();
    throw;
  }
}

// ---- Jobs

Job& Runner::add(std::unique_ptr<Unit> unit, Card card) {
  const Hold hold(state_.lock);
  Job& job = state_.queue.add(std::move(unit), std::move(card));
  io_.expect(job.unit->program());
  job.labels = state_.recorder.labels(*job.unit);
  state_.tickets.expect(state_.queue.jobs().size());
  return job;
}

void Runner::show(Job& job) {
  const Hold hold(state_.lock);
  agreement_.write_card(job);
  state_.queue.show(job);
  state_.lock.wake_poll();
}

std::unique_ptr<Unit> Runner::forget(Job& job) {
  const Hold hold(state_.lock);
  std::unique_ptr<Unit> unit = state_.queue.forget(job);
  if (!control_.cards_in_flight()) job.card_frame.reset();
  return unit;
}

// Begins a round of a job. The entry of the bucket order is sent in the layout's card if the card has not been sent
// yet, otherwise as an announcement if it was not predicted. A peer that has announced its departure cannot complete
// the round, so the session fails now and not at the first missing message.
Status Runner::start(Job& job, std::span<const Tensor> bucket, std::uint32_t round, std::uint64_t ticket) {
  const Hold hold(state_.lock);
  if (!failures_.open()) return state_.shutdown.verdict();
  const bool in_card = !job.shown;
  const Announcement entry = agreement_.next_entry(job, round);
  job.ticket = ticket;
  state_.rounds.begin(round);
  for (const Rank r : state_.others)
    if (state_.peer(r).leaving) {
      failures_.fail({Finding::kLeft, {Code::kPeerLost, state_.shutdown.report_of(r)->what, r}, r});
      return {};
    }
  job.unit->begin(bucket, round);
  if (!failures_.watching()) failures_.begin();
  state_.queue.begin(job, state_.now());
  state_.recorder.stats().values += job.unit->values();
  state_.queue.at(in_ns(job.began));
  if (const Status s = agreement_.match_cards(); !s.ok()) failures_.accuse(s);
  add_entry(entry, in_card);
  if (failures_.open()) release(job);
  hand_over();
  if (state_.proxy.on())
    control_.send_soon();
  else
    state_.lock.wake_poll();  // peers may need this rank's answers from now on
  return {};
}

void Runner::add_entry(const Announcement& entry, bool in_card) {
  if (!failures_.open()) return;
  if (const Status s = state_.order.add(entry, in_card); !s.ok()) failures_.accuse(s);
  if (state_.order.has_pending()) control_.send_soon();
}

// Starts a job if the cards of all ranks for its layout are equal and the bucket order does not hold the round. Fails
// if the card cannot arrive because the peer is gone.
void Runner::release(Job& job) {
  if (job.state != Job::State::kAwaitsCards) return;
  if (!job.agreed) {
    for (const Rank r : state_.others)
      if (const Peer& p = state_.peer(r); p.gone && p.first_card + p.cards.size() <= job.number)
        return failures_.fail({lost(p.why_gone), {Code::kPeerLost, p.why_gone.what(), r}});
    return;
  }
  if (state_.order.holds()) return;
  state_.queue.run(job);
  if (job.state == Job::State::kDone) done(job);
}

void Runner::finish(const Task& task) {
  if (!state_.queue.finished(task)) return;
  if (task.job->unit != nullptr && !task.job->unit->finite()) state_.rounds.meet_nonfinite();
  state_.recorder.bucket(*task.job, state_.rounds.round(), in_ns(task.job->began), state_.trace_ns());
  done(*task.job);
}

void Runner::done(Job& job) {
  if (job.awaited > 0) state_.lock.wake_callers();
  state_.tickets.add(job.ticket, state_.shutdown.verdict());
  end_work();
}

// Ends this rank's work for a closing round, on the thread that finishes the last job. Waking a caller to do it would
// add two thread switches to every round.
void Runner::end_work() {
  if (!state_.rounds.closes() || state_.queue.active() > 0 || !failures_.open()) return;
  failures_.begin();  // other ranks may have computed until now
  if (state_.member.me == 0) state_.reconfiguration.decide(state_.rounds.ended() + 1);
  state_.rounds.end_work(state_.now());
  control_.agree_round();
  control_.send_soon();
}

// Wakes threads for the steps that became ready. runs_on: the calling thread takes steps next, so light steps need no
// other thread.
void Runner::hand_over(bool runs_on) {
  const std::size_t fresh = state_.queue.take_fresh();
  if (!runs_itself())
    state_.lock.wake_lanes(fresh);
  else if (!runs_on)
    state_.lock.wake_poll();
  if (has_messages()) state_.lock.wake_poll();
}

// ---- The communication lane

// Posts ready messages to the transport, in order.
void Runner::post(Hold& hold) {
  control_.send_cards(hold);
  while (io_.has_ready() && failures_.open()) {
    io_.post_batch(hold);
    hand_over();
  }
}

// One turn: posts messages, polls the transport, handles its completions, and checks the liveness of peers.
void Runner::turn(Hold& hold, nanoseconds wait) {
  do {  // these unlock, and no thread wakes this one meanwhile
    post(hold);
    build(hold);
    control_.send_pending(hold);
  } while (failures_.open() &&
           (has_messages() || control_.has_pending() || state_.reconfiguration.has_work() ||
            (runs_itself() && run_some(hold, lanes_))));
  const auto limit = [&](Instant end) {
    wait = std::clamp<nanoseconds>(end - state_.now(), nanoseconds(0), wait);
  };
  if (state_.shutdown.in_progress()) {
    if (shut_down()) return;
    wait = std::min<nanoseconds>(wait, std::chrono::milliseconds(10));
  } else if (failures_.watching()) {
    limit(failures_.next_check());
  }
  // A caller that waits until this rank's done message is sent sleeps until it is woken.
  const bool sending = control_.done_pending();
  if (sending) limit(control_.send_deadline());
  if (stop_) return;
  if (failures_.open())
    if (const auto check = state_.proxy.check(state_.rounds, state_.peers, state_.now())) limit(*check);
  const std::span<const Completion> completions = io_.poll(hold, wait);
  const Instant now = state_.now();
  for (const Completion& c : completions) complete(c, state_.recorder.on() ? state_.now() : now);
  hand_over();
  if (sending && now >= control_.send_deadline()) state_.lock.wake_callers();
  if (!failures_.watching() || now < failures_.next_check()) return;
  failures_.check();
  control_.send_soon();  // ask messages may be pending
}

void Runner::complete(const Completion& done, Instant now) {
  state_.queue.at(in_ns(now));
  if ((done.op & kControlBit) != 0)
    control_.complete(done);
  else if (const std::optional<Task> ran = io_.complete(done, now))
    finish(*ran);
  if (control_.take_released())
    for (const auto& job : state_.queue.jobs()) release(*job);
}

// Sends this rank's report and cancels its operations, once; then waits for the reports of other ranks. Frames may
// still be in flight when the shutdown is over. The jobs own their memory, and only compute steps use the caller's
// tensors.
bool Runner::shut_down() {
  Shutdown& shutdown = state_.shutdown;
  if (!shutdown.report_sent()) {
    shutdown.send_report(*state_.transport, state_.peers, state_.rounds.uncommitted(),
                         state_.rounds.agreed_finite(), state_.now());
    io_.cancel_all();
  }
  shutdown.relay(*state_.transport, state_.peers);
  if (running_ > 0 || !shutdown.finish(state_.now(), state_.peers, state_.rounds.waits())) return false;
  state_.lock.wake_callers();
  for (const auto& job : state_.queue.jobs()) state_.tickets.add(job->ticket, shutdown.verdict());
  return true;
}

// ---- New plans (reconfiguration.h)

Status Runner::propose(std::string text, std::uint64_t after) {
  Hold hold(state_.lock);
  if (!failures_.open()) return state_.shutdown.verdict();
  if (state_.reconfiguration.under_way())
    return {Code::kInvalid,
            "a proposal is pending already: proposal() returns its state; propose again when it has been "
            "accepted or refused"};
  if (after > 0 && after <= state_.rounds.ended())
    return {Code::kInvalid, "the previous round has ended: propose a later round, or round 0"};
  state_.reconfiguration.propose(std::move(text), after);
  if (lanes_ == 0) build(hold);
  control_.send_soon();
  return {};
}

void Runner::build(Hold& hold) {
  while (failures_.open()) {
    std::optional<Reconfiguration::Work> work = state_.reconfiguration.next_work();
    if (!work) return;
    hold.unlock();
    run_in_background([this, w = std::move(*work)] { build_now(w); });
    hold.take();
  }
}

// The answer of the builder is this rank's answer.
void Runner::build_now(const Reconfiguration::Work& work) {
  if (!work.builds) return builder_.discard(work.number);
  Answer answer = builder_.build(work.number, work.text);
  const Hold hold(state_.lock);
  state_.reconfiguration.built(std::move(answer));
  control_.send_soon();
}

bool Runner::end_round(bool dropped, std::int64_t began_ns) {
  const std::lock_guard lock(state_.lock.mutex());
  ++(dropped ? state_.recorder.stats().rounds_dropped : state_.recorder.stats().rounds);
  state_.rounds.commit();
  state_.proxy.end_round(state_.now());
  state_.recorder.call("commit", state_.rounds.round(), began_ns, state_.trace_ns());
  return state_.reconfiguration.switch_over(state_.rounds.ended());
}

void Runner::take_back(bool dropped) {
  const std::lock_guard lock(state_.lock.mutex());
  --(dropped ? state_.recorder.stats().rounds_dropped : state_.recorder.stats().rounds);
  state_.rounds.take_back();
  state_.order.expect_surprise();
}

void Runner::be_of_job(std::uint64_t job, bool restored) {
  const std::lock_guard lock(state_.lock.mutex());
  agreement_.set_announced_job(job);
  if (restored) state_.order.expect_surprise();
}

void Runner::mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns) {
  if (!state_.recorder.on() || op.empty()) return;
  const std::lock_guard lock(state_.lock.mutex());
  state_.recorder.call(state_.recorder.name(op), state_.rounds.uncommitted(), begin_ns, end_ns);
}

}  // namespace tithe::engine
