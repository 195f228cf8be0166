// SPDX-License-Identifier: Apache-2.0
// Two clocks per awaited peer:
//   silence    the time since an expected sign of life: bytes of frames, awaited cards and done messages, answers to
//              this rank's asks, and reports that the peer has received more of this rank's bytes. After `timeout`
//              the peer is silent. Unrequested bytes do not reset the clock.
//   standstill the time since progress: the same signs except answers. A peer that answers is alive. After
//              `patience`, the rank at the end of the chain of waiting ranks is named.
// A rank that has waited for a quarter of the timeout asks every peer for its state. So if it fails, its report can
// list the silent ranks. If bytes are in flight and nothing moves for `timeout`, the link is stuck, and no rank is
// named. While bytes of other ranks arrive, a peer has twice the timeout to send a message: all peers share this
// rank's link, and its queue may be as long as one timeout. The time in which this rank did not check its clocks
// (frozen, or computing without lanes) counts against no peer.
#include "engine/run/failure_detector.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::engine {
namespace {

using std::chrono::nanoseconds;

std::string format_time(nanoseconds t) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(t).count();
  return ms < 10'000 ? fmt::format("{} ms", ms) : fmt::format("{} s", (ms + 500) / 1000);
}

std::string format_bytes(std::uint64_t n) {
  if (n < 10'000) return fmt::format("{} bytes", n);
  return n < 10'000'000 ? fmt::format("{:.1f} KB", static_cast<double>(n) / 1e3)
                        : fmt::format("{:.1f} MB", static_cast<double>(n) / 1e6);
}

}  // namespace

// ---- Failures

void FailureDetector::fail(const Trouble& trouble) {
  if (!open()) return;
  state_.shutdown.begin({.finding = trouble.finding,
                         .code = trouble.why.code(),
                         .witness = trouble.witness == Status::kNoPeer ? state_.member.me : trouble.witness,
                         .blamed = trouble.why.peer(),
                         .round = state_.rounds.uncommitted(),
                         .silent_peers = silent_ranks(),
                         .what = trouble.why.what()},
                        state_.now());
  state_.queue.drop();
  state_.send_window.drop();
  state_.lock.wake_poll();
}

void FailureDetector::withdraw() {
  if (!open()) return;
  state_.shutdown.withdraw();
  if (watching())
    fail({Finding::kLeft, {Code::kPeerLost, "it left in the middle of a round", state_.member.me}});
  else  // no round is in progress: peers may continue without this rank
    fail({Finding::kLeft, {Code::kCancelled, "it left", state_.member.me}});
}

void FailureDetector::lose(Rank peer, Status why) {
  state_.peer(peer).gone = true;
  state_.peer(peer).why_gone = std::move(why);
  if (state_.rounds.agreed()) state_.lock.wake_callers();  // callers no longer wait for messages to it
}

Status FailureDetector::present() const {
  TITHE_TRY(state_.shutdown.verdict());
  for (const Rank r : state_.others)
    if (const Peer& p = state_.peer(r); p.gone && !p.leaving) return {Code::kPeerLost, p.why_gone.what(), r};
  return {};
}

std::vector<Rank> FailureDetector::missed() const {
  const Rank blamed = state_.shutdown.verdict().peer();
  std::vector<Rank> out;
  for (const Rank r : state_.others)
    if (state_.peer(r).gone || blamed == r || state_.shutdown.silent(r)) out.push_back(r);
  return out;
}

// ---- Clocks

void FailureDetector::record_sign(Peer& peer, bool progress, Instant now) {
  peer.last_sign = now;
  peer.unanswered_since.reset();
  if (progress) peer.last_progress = now;
}

void FailureDetector::take_report(Peer& peer, const Report& report) {
  // The peer has received more of this rank's bytes. This can happen only a bounded number of times.
  if (report.received > peer.report.received && report.received <= peer.sent) record_sign(peer, true);
  peer.report = report;
  if (report.waits_for < 0 || report.waits_for >= state_.member.world)
    peer.report.waits_for = Status::kNoPeer;
  const Instant now = state_.now();
  count_bytes(now);
  if (report.sent <= peer.received)
    peer.in_flight_since.reset();
  else if (!peer.in_flight_since)
    peer.in_flight_since = now;
}

// Compares the transport's byte counts with the known ones. Additional bytes beyond control messages are frame bytes:
// a sign of progress.
void FailureDetector::count_bytes(Instant now) {
  for (const Rank r : state_.others) {
    Peer& p = state_.peer(r);
    const std::uint64_t all = state_.transport->bytes_received(r);
    if (all < p.control_bytes + p.received + 1) continue;
    p.received = all - p.control_bytes;
    p.in_flight_since.reset();
    record_sign(p, true, now);
    arrived_ = now;
  }
}

void FailureDetector::begin() {
  const Instant now = state_.now();
  floor_ = checked_ = now;
  next_check_ = now + state_.limits.timeout / 8;
  for (Peer& p : state_.peers) {
    p.unanswered_since.reset();
    p.in_flight_since.reset();
    p.wait_began = now;
    p.received_before = p.received;
    if (p.gone || p.leaving) next_check_ = now;
  }
}

std::vector<Rank> FailureDetector::silent_ranks() const {
  std::vector<Rank> out;
  for (const Rank r : state_.others) {
    const Peer& p = state_.peer(r);
    const bool silent = p.unanswered_since && state_.now() - *p.unanswered_since >= state_.limits.timeout / 2;
    if (p.gone ? lost(p.why_gone) == Finding::kSilent : silent) out.push_back(r);
  }
  return out;
}

// Computes the ranks that this rank waits for, and since when. The time of an awaited message counts before the time
// of an outgoing one.
void FailureDetector::find_awaited() {
  std::fill(awaited_.begin(), awaited_.end(), Awaited{});
  const auto add = [&](Rank r, Instant since, bool must_send, bool control) {
    Awaited& a = awaited_[static_cast<std::size_t>(r)];
    if ((must_send && !a.must_send) ||
        (must_send == a.must_send && (since < a.since || !(a.must_send || a.outgoing))))
      a.since = since;
    a.must_send |= must_send;
    a.control |= control;
    a.outgoing |= !must_send;
  };
  for (const auto& job : state_.queue.jobs()) {
    if (job->state == Job::State::kAwaitsCards)
      for (const Rank r : state_.others)
        if (state_.peer(r).first_card + state_.peer(r).cards.size() <= job->number || state_.order.awaits(r))
          add(r, job->began, true, true);
    if (job->state != Job::State::kRuns) continue;
    const auto& steps = job->unit->program().steps;
    for (std::size_t s = 0; s < steps.size(); ++s)
      if (job->posted_ns[s] != 0)
        add(steps[s].peer, Instant(nanoseconds(job->posted_ns[s])), steps[s].kind == StepKind::kRecv, false);
  }
  if (state_.rounds.waits())
    for (const Rank r : state_.others)
      if (state_.peer(r).done < state_.rounds.ended()) add(r, state_.rounds.since(), true, true);
}

// This rank's report to a peer about its own state.
Report FailureDetector::report_to(Rank peer, std::uint32_t number) {
  const Peer& p = state_.peer(peer);
  Report r{.number = number,
           .round = state_.rounds.uncommitted(),
           .received = p.received,
           .sent = p.sent,
           .messages_sent = p.messages_sent};
  if (!waits()) return r;
  r.state = Report::State::kWorks;
  find_awaited();
  for (const bool must_send : {true, false}) {
    for (Rank k = 0; k < state_.member.world && r.waits_for == Status::kNoPeer; ++k) {
      // The receiver of the report is checked first.
      const Rank q = k == 0 ? peer : (k <= peer ? k - 1 : k);
      const Awaited& a = awaited_[static_cast<std::size_t>(q)];
      if (must_send ? a.must_send : a.outgoing) r.waits_for = q;
    }
  }
  if (r.waits_for != Status::kNoPeer) r.state = Report::State::kWaits;
  return r;
}

// Shifts all clocks by the time in which this rank did not check them.
void FailureDetector::discount_pause(Instant now) {
  const nanoseconds pause = now - checked_;
  checked_ = now;
  if (pause <= state_.limits.timeout / 4) return;
  const auto later = [&](Instant& t) { t = std::min(now, t + pause); };
  for (Peer& p : state_.peers) {
    later(p.last_sign);
    later(p.last_progress);
    if (p.unanswered_since) later(*p.unanswered_since);
    if (p.in_flight_since) later(*p.in_flight_since);
  }
}

// Checks every awaited peer. If one has been awaited for a quarter of the timeout, marks all peers for an ask message.
void FailureDetector::check() {
  const Instant now = state_.now();
  const nanoseconds quarter = state_.limits.timeout / 4;
  discount_pause(now);
  count_bytes(now);
  find_awaited();
  Instant next = now + state_.limits.timeout / 8;
  bool ask = false;
  for (Rank r = 0; r < state_.member.world; ++r) {
    const Awaited& a = awaited_[static_cast<std::size_t>(r)];
    if (!a.must_send && !a.outgoing) continue;
    state_.peer(r).last_sign = std::max({state_.peer(r).last_sign, a.since, floor_});
    state_.peer(r).last_progress = std::max({state_.peer(r).last_progress, a.since, floor_});
    if (const auto trouble = check_peer(r, a, now)) return fail(*trouble);
    ask = ask || now - std::max(a.since, floor_) >= quarter;
    next = std::min(next, state_.peer(r).last_sign + state_.limits.timeout);
  }
  if (ask)
    for (const Rank r : state_.others) {
      Peer& p = state_.peer(r);
      if (p.gone || now - p.last_ask < quarter) continue;
      p.last_ask = now;
      p.ask_pending = true;
      if (!p.unanswered_since) p.unanswered_since = now;
    }
  next_check_ = std::max(next, now + std::chrono::microseconds(100));
}

std::optional<Trouble> FailureDetector::check_peer(Rank peer, const Awaited& a, Instant now) const {
  const Peer& p = state_.peer(peer);
  // A peer that leaves between two buckets of a round has sent all frames that it had begun. These may still arrive;
  // frames that it had not begun never will.
  if (p.leaving && (a.control || now - p.last_progress >= state_.limits.timeout / 4))
    return Trouble{Finding::kLeft, {Code::kPeerLost, "it left", peer}, peer};
  if ((a.control || p.cancelled) && p.gone)
    return Trouble{lost(p.why_gone), {Code::kPeerLost, p.why_gone.what(), peer}};
  // While bytes of other ranks arrive, the peer's messages may be queued behind them on this rank's link.
  const nanoseconds limit = state_.limits.timeout * (now - arrived_ < state_.limits.timeout / 2 ? 2 : 1);
  if (const nanoseconds quiet = now - p.last_sign;
      quiet >= limit && p.unanswered_since && now - *p.unanswered_since >= state_.limits.timeout / 4)
    return Trouble{Finding::kSilent,
                   {Code::kTimeout, fmt::format("it sent nothing for {}", format_time(limit)), peer}};
  // A stuck link: the peer waits for this rank, its bytes are in flight, and no bytes arrive from it or from any
  // rank.
  if (a.must_send && p.in_flight_since &&
      now - std::max({*p.in_flight_since, p.last_progress, arrived_}) >= state_.limits.timeout &&
      p.report.state == Report::State::kWaits && p.report.waits_for == state_.member.me) {
    const std::uint64_t came = p.received - p.received_before;
    const double seconds = std::max(1e-3, std::chrono::duration<double>(now - p.wait_began).count());
    return Trouble{
        Finding::kStuck,
        {Code::kTimeout,
         fmt::format(
             "the link from rank {} to rank {} is stuck or too slow: {} of {} arrived in {} ({:.3g} Mbit/s), "
             "and nothing more for {}; both ranks are alive; if the link is only slow, raise timeout",
             peer, state_.member.me, format_bytes(came), format_bytes(p.report.sent - p.received_before),
             format_time(now - p.wait_began), static_cast<double>(came) * 8e-6 / seconds,
             format_time(now - std::max(p.last_progress, p.wait_began)))}};
  }
  if (const nanoseconds waited = now - p.last_progress; waited >= state_.limits.patience && p.answers > 0)
    return idle(waited);
  return std::nullopt;
}

// All ranks answer and none makes progress: name the lowest rank that waits for no other rank, because the chains of
// waiting ranks end there.
Trouble FailureDetector::idle(nanoseconds waited) const {
  for (const Report::State state : {Report::State::kIdle, Report::State::kWorks})
    for (const Rank r : state_.others)
      if (state_.peer(r).answers > 0 && state_.peer(r).report.state == state)
        return {Finding::kIdle,
                {Code::kTimeout,
                 state == Report::State::kIdle
                     ? fmt::format("rank {} is alive, but did not pass its buckets or end the round for {}; "
                                   "if it needs more time, raise patience",
                                   r, format_time(waited))
                     : fmt::format(
                           "rank {} is alive and has computed for {}; if it needs more time, raise patience",
                           r, format_time(waited)),
                 r}};
  return {Finding::kIdle,
          {Code::kTimeout, fmt::format("ranks wait for each other in a cycle for {}, all of them alive: pass "
                                       "the same buckets in the same order on all ranks",
                                       format_time(waited))}};
}

}  // namespace tithe::engine
