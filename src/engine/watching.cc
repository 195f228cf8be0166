// SPDX-License-Identifier: Apache-2.0
// Who is alive: what the control channel brings, and the clocks of those that owe this rank something.
//
// Threads: the communication lane alone (or the caller that waits, without lanes), under the runner's mutex.
// Two clocks per peer that is awaited:
//   silence    since anything expected was heard: bytes of frames as they arrive, cards and done messages that this
//              rank waits for, answers to its own asks, and the news that the peer has received more of what this
//              rank sent. After `timeout` the peer is silent. What nobody asked for stops no clock.
//   standstill since anything was gained: the same without answers. A peer that answers is alive; after `patience`
//              the one at the end of the chain of those that wait for each other is named.
// A rank that waits for a quarter of the timeout asks every peer how it is; so that, when it fails, it knows whom it
// hears. Bytes that are on the way while nothing moves for `timeout` are a link that is stuck, and nobody's fault.
// Where others' bytes come in, a peer has twice the timeout for a word: all share this rank's link, and a queue there
// may be as long as a timeout.
// Time in which this rank did not look (it was frozen, or computed without a lane) counts against nobody.
#include <fmt/format.h>

#include <algorithm>

#include "engine/operations.h"
#include "engine/runner.h"

namespace tithe::engine {
namespace {

using std::chrono::nanoseconds;

std::string spell(nanoseconds t) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(t).count();
  return ms < 10'000 ? fmt::format("{} ms", ms) : fmt::format("{} s", (ms + 500) / 1000);
}

std::string spell_bytes(std::uint64_t n) {
  if (n < 10'000) return fmt::format("{} bytes", n);
  return n < 10'000'000 ? fmt::format("{:.1f} KB", static_cast<double>(n) / 1e3)
                        : fmt::format("{:.1f} MB", static_cast<double>(n) / 1e6);
}

}  // namespace

void Runner::listen(Rank peer) {
  if (peer == member_.me || at(peer).gone) return;
  const Bytes into(at(peer).in.get(), kControlBytes);
  if (Status s = transport_->recv(peer, kControlChannel, into, control_op(kHear, peer)); !s.ok()) {
    at(peer).gone = true;
    at(peer).why_gone = std::move(s);
  }
}

void Runner::complete_control(const Completion& done) {
  const auto peer = static_cast<Rank>(done.op & 0xffffffffU);
  const auto kind = static_cast<ControlOp>(done.op >> 32 & 0x7fffffffU);
  Peer& p = at(peer);
  if (kind == kFarewellOp) --farewell_sends_;
  if (kind == kNote) {
    p.out_busy = false;
    post_notes_ = true;
  }
  if (kind != kHear) return;
  if (done.status.code() == Code::kTooSmall && member_.tags != nullptr) {  // no rank writes one so long
    ++stats_.strange;
    return listen(peer);
  }
  if (done.status.code() == Code::kTooSmall)
    return fail(Finding::kAccused,
                {Code::kCorrupt, fmt::format("a control message of rank {} is too long", peer), peer});
  if (!done.status.ok()) {
    p.gone = true;
    p.why_gone = done.status;
    look_at_ = {};  // a peer that owes a word has no other operation that would tell
    return;
  }
  p.control_bytes += done.bytes;
  Result<Control> control = read_control(ByteView(p.in.get(), done.bytes), voice(), peer, p.numbers);
  listen(peer);
  if (!control.ok() && control.status().peer() == Status::kNoPeer) {  // not from that rank: as if never sent
    ++stats_.strange;
    return;
  }
  if (!control.ok()) return fail(Finding::kAccused, {control.status().code(), control.status().what(), peer});
  take(peer, *control);
}

// A peer sends what it may, or is named: nothing that it says makes this rank keep more than a fixed amount.
void Runner::take(Rank peer, Control& control) {
  Peer& p = at(peer);
  switch (control.kind) {
    case ControlKind::kEvidence:
      if (!p.evidence) p.evidence = std::move(control.evidence);
      return;
    case ControlKind::kFarewell:
      return heard_farewell(peer, control.farewell);
    case ControlKind::kDone:
      // It ends a round only after it has committed the one before, for which it needed this rank's word.
      if (control.ended <= p.done || control.ended > done_ + 1)
        return fail(Finding::kAccused,
                    {Code::kCorrupt,
                     fmt::format("rank {} says that it has ended {} rounds, this rank is in round {}", peer,
                                 control.ended, done_ + 1),
                     peer});
      p.done = control.ended;
      hear(p, instant(), true);
      return settle();
    case ControlKind::kCard:
      return take_card(peer, control.card);
    case ControlKind::kAsk:
    case ControlKind::kHere:
      return take_report(peer, control);
  }
}

void Runner::take_card(Rank peer, Card& card) {
  if (life_ != Life::kOpen) return;
  Peer& p = at(peer);
  const std::uint32_t next = p.first_card + static_cast<std::uint32_t>(p.cards.size());
  if (card.number != next)
    return fail(
        Finding::kAccused,
        {Code::kCorrupt,
         fmt::format("rank {} sends the card of layout {}, its next is {}", peer, card.number, next), peer});
  if (p.cards.size() == kMostCardsAhead)
    return fail(Finding::kAccused,
                {Code::kCorrupt,
                 fmt::format("rank {} sends cards of more than {} layouts that this rank has not "
                             "seen",
                             peer, kMostCardsAhead),
                 peer});
  if (card.number < jobs_.size()) hear(p, instant(), true);
  p.cards.push(std::move(card));
  for (const auto& job : jobs_) release(*job);
}

void Runner::take_report(Rank peer, const Control& control) {
  if (life_ != Life::kOpen) return;
  Peer& p = at(peer);
  const Report& r = control.report;
  const Instant now = instant();
  if (control.kind == ControlKind::kAsk) {
    p.owes_answer = post_notes_ = true;
    p.answer_number = r.number;
  } else if (r.number <= p.answers || r.number > p.asks) {
    return fail(Finding::kAccused,
                {Code::kCorrupt, fmt::format("rank {} answers what it was not asked", peer), peer});
  } else {
    p.answers = r.number;
    hear(p, now, false);
  }
  // More of what was sent to it has arrived there: news that can come only so often.
  if (r.received > p.report.received && r.received <= p.sent) hear(p, now, true);
  p.report = r;
  if (p.report.waits_for < 0 || p.report.waits_for >= member_.world) p.report.waits_for = Status::kNoPeer;
  count_bytes(now);
  if (r.sent <= p.received)
    p.on_the_way.reset();
  else if (!p.on_the_way)
    p.on_the_way = now;
}

void Runner::hear(Peer& peer, Instant now, bool gained) {
  peer.heard = now;
  peer.unanswered.reset();
  if (gained) peer.gained = now;
}

void Runner::settle() {
  // What this rank has said in its farewell stays true: from then on only another one's commit counts.
  if (!agreeing_ || agreed_ || (life_ != Life::kOpen && parting_begun_)) return;
  for (Rank r = 0; r < member_.world; ++r)
    if (r != member_.me && at(r).done < done_) return;
  agreed_ = true;
  round_open_ = false;
  news_.notify_all();
}

void Runner::count_bytes(Instant now) {
  for (Rank r = 0; r < member_.world; ++r) {
    if (r == member_.me) continue;
    Peer& p = at(r);
    const std::uint64_t all = transport_->bytes_received(r);
    if (all < p.control_bytes + p.received + 1) continue;
    p.received = all - p.control_bytes;
    p.on_the_way.reset();
    hear(p, now, true);
    arrived_ = now;
  }
}

void Runner::begin_watch() {
  const Instant now = instant();
  floor_ = looked_ = now;
  look_at_ = now + limits_.timeout / 8;
  for (Peer& p : peers_) {
    p.unanswered.reset();
    p.on_the_way.reset();
    p.began = now;
    p.received_before = p.received;
    if (p.gone || p.left) look_at_ = now;
  }
}

// Who owes this rank something, and since when.
void Runner::await(std::vector<Awaited>& all) const {
  std::fill(all.begin(), all.end(), Awaited{});
  const auto add = [&](Rank r, Instant since, bool owed, bool says) {
    Awaited& a = all[static_cast<std::size_t>(r)];
    if ((owed && !a.owed) || (owed == a.owed && (since < a.since || !(a.owed || a.takes)))) a.since = since;
    a.owed |= owed;
    a.says |= says;
    a.takes |= !owed;
  };
  for (const auto& job : jobs_) {
    if (job->state == Job::State::kAwaitsCards)
      for (Rank r = 0; r < member_.world; ++r)
        if (r != member_.me && at(r).first_card + at(r).cards.size() <= job->number)
          add(r, job->began, true, true);
    if (job->state != Job::State::kRuns) continue;
    const auto& steps = job->unit->program().steps;
    for (std::size_t s = 0; s < steps.size(); ++s)
      if (job->posted_ns[s] != 0)
        add(steps[s].peer, Instant(nanoseconds(job->posted_ns[s])), steps[s].kind == StepKind::kRecv, false);
  }
  if (agreeing_ && !agreed_)
    for (Rank r = 0; r < member_.world; ++r)
      if (r != member_.me && at(r).done < done_) add(r, agreeing_since_, true, true);
}

// What this rank tells a peer about itself.
Report Runner::report_to(Rank peer, std::uint32_t number) {
  Report r{.number = number, .round = uncommitted(), .received = at(peer).received, .sent = at(peer).sent};
  if (!watching()) return r;
  r.state = Report::State::kWorks;
  await(awaited_);
  for (const bool owed : {true, false}) {
    for (Rank k = 0; k < member_.world && r.waits_for == Status::kNoPeer; ++k) {
      const Rank q = k == 0 ? peer : (k <= peer ? k - 1 : k);  // the one who is told comes first
      const Awaited& a = awaited_[static_cast<std::size_t>(q)];
      if (owed ? a.owed : a.takes) r.waits_for = q;
    }
  }
  if (r.waits_for != Status::kNoPeer) r.state = Report::State::kWaits;
  return r;
}

Instant Runner::watch(Instant now) {
  const nanoseconds quarter = limits_.timeout / 4;
  if (const nanoseconds away = now - looked_; away > quarter) {
    const auto later = [&](Instant& t) { t = std::min(now, t + away); };
    for (Peer& p : peers_) {
      later(p.heard);
      later(p.gained);
      if (p.unanswered) later(*p.unanswered);
      if (p.on_the_way) later(*p.on_the_way);
    }
  }
  looked_ = now;
  count_bytes(now);
  await(awaited_);
  Instant next = now + limits_.timeout / 8;
  bool ask = false;
  for (Rank r = 0; r < member_.world; ++r) {
    const Awaited& a = awaited_[static_cast<std::size_t>(r)];
    if (!a.owed && !a.takes) continue;
    at(r).heard = std::max({at(r).heard, a.since, floor_});
    at(r).gained = std::max({at(r).gained, a.since, floor_});
    if (!look_at(r, a, now)) return now;
    ask = ask || now - std::max(a.since, floor_) >= quarter;
    next = std::min(next, at(r).heard + limits_.timeout);
  }
  if (ask)
    for (Rank r = 0; r < member_.world; ++r) {
      Peer& p = at(r);
      if (r == member_.me || p.gone || now - p.asked < quarter) continue;
      p.asked = now;
      p.owes_ask = post_notes_ = true;
      if (!p.unanswered) p.unanswered = now;
    }
  return std::max(next, now + std::chrono::microseconds(100));
}

// False: the session has failed.
bool Runner::look_at(Rank peer, const Awaited& a, Instant now) {
  const Peer& p = at(peer);
  if (a.says && p.left) {
    fail(Finding::kLeft, {Code::kPeerLost, "it left", peer}, peer);
    return false;
  }
  if (a.says && p.gone) {
    fail(lost(p.why_gone), {Code::kPeerLost, p.why_gone.what(), peer});
    return false;
  }
  // While bytes of others come in, its words may be queued behind them: this rank's own link is busy.
  const nanoseconds limit = limits_.timeout * (now - arrived_ < limits_.timeout / 2 ? 2 : 1);
  if (const nanoseconds quiet = now - p.heard;
      quiet >= limit && p.unanswered && now - *p.unanswered >= limits_.timeout / 4) {
    fail(Finding::kSilent,
         {Code::kTimeout, fmt::format("nothing was heard from it for {}", spell(limit)), peer});
    return false;
  }
  // Nothing moves: not from it, not to it, and nothing else to this rank.
  if (a.owed && p.on_the_way && now - std::max({*p.on_the_way, p.gained, arrived_}) >= limits_.timeout &&
      p.report.state == Report::State::kWaits && p.report.waits_for == member_.me) {
    const std::uint64_t came = p.received - p.received_before;
    const double seconds = std::max(1e-3, std::chrono::duration<double>(now - p.began).count());
    fail(Finding::kStuck,
         {Code::kTimeout,
          fmt::format(
              "the link from rank {} to rank {} is stuck or too slow: {} of {} came in {} ({:.3g} Mbit/s), "
              "and nothing more for {}; both ranks are alive",
              peer, member_.me, spell_bytes(came), spell_bytes(p.report.sent - p.received_before),
              spell(now - p.began), static_cast<double>(came) * 8e-6 / seconds,
              spell(now - std::max(p.gained, p.began)))});
    return false;
  }
  if (const nanoseconds waited = now - p.gained; waited >= limits_.patience && p.answers > 0) {
    blame_idle(waited);
    return false;
  }
  return true;
}

// Ranks that answer and give nothing: the lowest that waits for nobody is the one that all wait for in the end.
void Runner::blame_idle(nanoseconds waited) {
  for (const Report::State state : {Report::State::kIdle, Report::State::kWorks})
    for (Rank r = 0; r < member_.world; ++r)
      if (r != member_.me && at(r).answers > 0 && at(r).report.state == state)
        return fail(
            Finding::kIdle,
            {Code::kTimeout,
             state == Report::State::kIdle
                 ? fmt::format(
                       "rank {} is alive, but has not handed over its buckets or ended the round for {}", r,
                       spell(waited))
                 : fmt::format("rank {} is alive and has computed for {}", r, spell(waited)),
             r});
  fail(Finding::kIdle,
       {Code::kTimeout,
        fmt::format("ranks wait for each other in a circle, all of them alive, for {}: do all hand "
                    "over the same buckets in the same order?",
                    spell(waited))});
}

void Runner::flush_outboxes(Lock& lock) {
  if (!std::exchange(post_notes_, false)) return;
  for (Rank r = 0; r < member_.world; ++r) {
    Peer& p = at(r);
    if (r == member_.me || p.out_busy || p.gone || life_ != Life::kOpen) continue;
    std::size_t bytes = 0;
    const Bytes out(p.out.get(), kControlBytes);
    if (p.told_done < done_) {
      p.told_done = done_;
      bytes = write_done(done_, voice(), out);
    } else if (std::exchange(p.owes_answer, false)) {
      bytes = write_report(ControlKind::kHere, report_to(r, p.answer_number), voice(), out);
    } else if (std::exchange(p.owes_ask, false)) {
      bytes = write_report(ControlKind::kAsk, report_to(r, ++p.asks), voice(), out);
    } else {
      continue;
    }
    p.out_busy = true;
    lock.unlock();
    const bool sent = transport_->send(r, kControlChannel, {p.out.get(), bytes}, control_op(kNote, r)).ok();
    lock.lock();
    if (!sent) p.out_busy = false;
  }
}

}  // namespace tithe::engine
