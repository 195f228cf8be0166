// SPDX-License-Identifier: Apache-2.0
// The messages that the control channel brings, and those that this rank sends on it.
//
// Threads: the communication lane alone (or the caller that waits, without lanes), but for end_work, under the runner's
// mutex; only send_notes lets go of it, while the transport takes a message.
// Owners: one receive and one message stand per peer, in memory of its Peer; a peer's next note waits until the
// transport is done with the last one.
// Failure: a peer says what it may, or it is named. A message without the job's tag was said by nobody, where
// strangers may speak; over connections that have proved the key it is the peer's, and damaged.
#include <fmt/format.h>

#include <algorithm>

#include "engine/run/operations.h"
#include "engine/run/runner.h"

namespace tithe::engine {

void Runner::listen(Rank peer) {
  if (peer == member_.me || at(peer).gone) return;
  const Bytes into(at(peer).in.get(), kControlBytes);
  if (Status s = transport_->recv(peer, kControlChannel, into, control_op(kControlRecv, peer)); !s.ok())
    lose(at(peer), std::move(s));
}

void Runner::lose(Peer& peer, Status why) {
  peer.gone = true;
  peer.why_gone = std::move(why);
  if (rounds_.agreed()) tell_callers();  // they need not tell it any more
}

void Runner::complete_control(const Completion& done) {
  const auto peer = static_cast<Rank>(done.op & 0xffffffffU);
  const auto kind = static_cast<ControlOp>(done.op >> 32 & 0x7fffffffU);
  Peer& p = at(peer);
  if (kind == kFarewellOp) shutdown_.sent();
  if (kind == kControlSend) --shown_;
  if (kind == kNote) {
    p.out_busy = false;
    notes_ = true;
    if (rounds_.agreed()) tell_callers();
  }
  if (kind != kControlRecv) return;
  if (done.status.code() == Code::kTooSmall && member_.strangers) {  // no rank writes one so long
    ++recorder_.stats().strange;
    return listen(peer);
  }
  if (done.status.code() == Code::kTooSmall)
    return fail({Finding::kAccused,
                 {Code::kCorrupt, fmt::format("a control message of rank {} is too long", peer), peer}});
  if (!done.status.ok()) {
    lose(p, done.status);
    if (done.status.code() == Code::kCorrupt)  // nothing that it says from now on could be believed
      return fail({Finding::kAccused, {Code::kCorrupt, done.status.what(), peer}});
    liveness_.look_soon();  // an awaited peer has no other operation in flight
    return;
  }
  p.control_bytes += done.bytes;
  Result<Control> control = read_control(ByteView(p.in.get(), done.bytes), identity(), peer, p.numbers);
  listen(peer);
  if (!control.ok() && control.status().peer() == Status::kNoPeer && member_.strangers) {
    ++recorder_.stats().strange;  // not from that rank: as if never sent
    return;
  }
  if (!control.ok())
    return fail({Finding::kAccused, {control.status().code(), control.status().what(), peer}});
  take(peer, *control);
  ++p.words;
  p.spoke = transport_->now();
}

// Nothing that a peer says makes this rank keep more than a fixed amount.
void Runner::take(Rank peer, Control& control) {
  switch (control.kind) {
    case ControlKind::kEvidence:
      if (!at(peer).evidence) at(peer).evidence = std::move(control.evidence);
      return;
    case ControlKind::kFarewell:
      return take_farewell(peer, control.farewell);
    case ControlKind::kEcho:
      return take_echo(peer, control.echo);
    case ControlKind::kDone:
      return take_done(peer, control.done);
    case ControlKind::kCard:
      return take_card(peer, control.card);
    case ControlKind::kAnnouncement:
      return take_announcement(peer, control.announcement);
    case ControlKind::kAsk:
    case ControlKind::kHere:
      return take_report(peer, control);
    case ControlKind::kFragment:
    case ControlKind::kAnswer:
    case ControlKind::kDecision:
      return take_proposal(peer, control);
  }
}

void Runner::take_done(Rank peer, const Done& done) {
  Peer& p = at(peer);
  // It ends a round only after it has committed the one before, for which it needed this rank's word.
  const bool news = done.ended > p.done || (done.ended == p.done && done.begun > p.begun);
  if (!news || done.ended > rounds_.ended() + 1 || done.begun < done.ended || done.begun > done.ended + 1)
    return fail(
        {Finding::kAccused,
         {Code::kCorrupt,
          fmt::format("rank {} says that it has ended {} rounds and begun {}, this rank is in round {}", peer,
                      done.ended, done.begun, rounds_.ended() + 1),
          peer}});
  p.done = done.ended;
  p.begun = done.begun;
  p.away_ns = done.away_ns;
  p.finite[done.ended % 2] = done.finite;
  liveness_.hear(p, true);
  finish_round();
}

void Runner::take_card(Rank peer, Card& card) {
  if (!shutdown_.open()) return;
  Peer& p = at(peer);
  const std::uint32_t next = p.first_card + static_cast<std::uint32_t>(p.cards.size());
  if (card.number != next)
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {} sends the card of layout {}, its next is {}", peer, card.number, next),
                  peer}});
  if (p.cards.size() == kMostCardsAhead)
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {} sends cards of more than {} layouts that this rank has not seen", peer,
                              kMostCardsAhead),
                  peer}});
  if (card.number < queue_.jobs().size()) liveness_.hear(p, true);
  const Announcement entry = entry_of(card);
  p.cards.push(std::move(card));
  match_cards();
  if (entry.place != kNoPlace) take_announcement(peer, entry);
  if (!shutdown_.open()) return;
  for (const auto& job : queue_.jobs()) release(*job);
}

void Runner::take_announcement(Rank peer, const Announcement& announcement) {
  if (!shutdown_.open()) return;
  if (announcement.ended > rounds_.ended())  // it would need this rank's word that the round before is over
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {} announces a bucket after {} rounds, this rank has ended {}", peer,
                              announcement.ended, rounds_.ended()),
                  peer}});
  const bool held = order_.holds();
  if (order_.awaits(peer)) liveness_.hear(at(peer), true);
  if (const Status s = order_.take(peer, announcement); !s.ok()) return fail({Finding::kAccused, s});
  notes_ = true;  // this rank may have to announce its own
  if (held && !order_.holds())
    for (const auto& job : queue_.jobs()) release(*job);
}

void Runner::take_report(Rank peer, const Control& control) {
  if (!shutdown_.open()) return;
  Peer& p = at(peer);
  const Report& r = control.report;
  // The control channel is in order: what it told before has come, or never will. Where strangers may speak, a message
  // that was damaged was taken for theirs, and nothing else would end the wait for it.
  if (r.told > p.words)
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {}: {} of its control messages came damaged or not at all", peer,
                              r.told - p.words),
                  peer}});
  if (control.kind == ControlKind::kAsk) {
    p.answer_pending = notes_ = true;
    p.answer_number = r.number;
  } else if (r.number <= p.answers || r.number > p.asks) {
    return fail({Finding::kAccused,
                 {Code::kCorrupt, fmt::format("rank {} answers what it was not asked", peer), peer}});
  } else {
    p.answers = r.number;
    liveness_.hear(p, false);
  }
  liveness_.take(p, r);
}

void Runner::take_farewell(Rank peer, const Farewell& farewell) {
  Peer& p = at(peer);
  const auto in_world = [&](Rank r) { return r >= 0 && r < member_.world; };
  FailureReport t{.finding = Finding::kAccused,
                  .code = farewell.code,
                  .witness = peer,
                  .blamed = in_world(farewell.blamed) ? farewell.blamed : Status::kNoPeer,
                  .round = farewell.round,
                  .finite = farewell.finite,
                  .what = farewell.what};
  if (p.evidence) {
    t.finding = p.evidence->finding;
    if (in_world(p.evidence->witness)) t.witness = p.evidence->witness;
    for (const Rank r : p.evidence->unheard)
      if (in_world(r) && r != peer && std::find(t.unheard.begin(), t.unheard.end(), r) == t.unheard.end())
        t.unheard.push_back(r);
  }
  if (!shutdown_.hear(peer, t)) return;
  learn_of_commit(t);
  if (!shutdown_.open()) return;
  if (t.finding == Finding::kLeft && t.blamed == peer) {
    p.leaves = true;
    liveness_.look_soon();
    if (t.code == Code::kCancelled || !watching()) return;
  }
  fail({t.finding, {t.code, t.what, t.blamed}, t.witness});
}

// An echo tells of a rank that this one does not hear, by one that does.
void Runner::take_echo(Rank peer, const Echo& echo) {
  if (echo.of == member_.me || echo.of == peer || !shutdown_.in_progress()) return;
  if (shutdown_.hear_of(peer, echo)) learn_of_commit(echo.failure_report);
}

// A rank that says that it has committed a round knows that all ranks had ended their work.
void Runner::learn_of_commit(const FailureReport& t) {
  if (!rounds_.waits() || t.round <= rounds_.round()) return;
  rounds_.agree(t.finite);
  tell_callers();
}

// ---- The end of a round

// On whatever thread ends the last job: a caller that had to be woken to say so would cost the round two more wakes.
void Runner::end_work() {
  if (!rounds_.closes() || queue_.active() > 0 || !shutdown_.open()) return;
  liveness_.begin();  // others may have been busy so far
  if (member_.me == 0) reconfiguration_.decide(rounds_.ended() + 1);
  rounds_.end_work(instant());
  finish_round();
  notes_ = true;
  nudge();
}

void Runner::finish_round() {
  // This rank's farewell has to stay true: once it is sent, only another one's commit counts.
  if (!rounds_.waits() || shutdown_.told()) return;
  for (Rank r = 0; r < member_.world; ++r)
    if (r != member_.me && at(r).done < rounds_.ended()) return;
  bool finite = rounds_.ended_finite();
  for (Rank r = 0; r < member_.world; ++r)
    finite = finite && (r == member_.me || at(r).finite[rounds_.ended() % 2]);
  rounds_.agree(finite);
  tell_callers();
}

Report Runner::report_to(Rank peer, std::uint32_t number) {
  Report report = liveness_.report_to(peer, number);
  report.told = at(peer).told;
  return report;
}

bool Runner::notes_pending() const {
  for (Rank r = 0; r < member_.world; ++r) {
    const Peer& p = peers_[static_cast<std::size_t>(r)];
    if (r != member_.me && !p.gone && (p.told_done < rounds_.ended() || p.out_busy)) return true;
  }
  return false;
}

// Sends each peer the note that matters most, if its last one is done with: a decision, an announcement, the end of a
// round, an answer, an ask, a piece of a proposal. An announcement comes after the end of the round before it. A
// decision comes before the end of the round that it is about (reconfiguration.h).
void Runner::send_notes(Hold& hold) {
  if (!std::exchange(notes_, false)) return;
  for (Rank r = 0; r < member_.world; ++r) {
    Peer& p = at(r);
    if (r == member_.me || p.out_busy || p.gone || !shutdown_.open()) continue;
    std::size_t bytes = 0;
    const Bytes out(p.out.get(), kControlBytes);
    if (reconfiguration_.decision_pending(r)) {
      bytes = reconfiguration_.write_pending_decision(r, identity(), out);
    } else if (order_.has_pending_for(r) && order_.pending_round(r) <= p.told_done) {
      bytes = write_announcement(order_.pop_pending(r), identity(), out);
    } else if (p.told_done < rounds_.ended() || (proxy_trigger_.on() && p.told_begun < rounds_.begun())) {
      p.told_done = rounds_.ended();
      p.told_begun = rounds_.begun();
      bytes = write_done({p.told_done, p.told_begun, away_ns_, rounds_.ended_finite()}, identity(), out);
    } else if (std::exchange(p.answer_pending, false)) {
      bytes = write_report(ControlKind::kHere, report_to(r, p.answer_number), identity(), out);
    } else if (std::exchange(p.ask_pending, false)) {
      bytes = write_report(ControlKind::kAsk, report_to(r, ++p.asks), identity(), out);
    } else if (reconfiguration_.fragments_pending(r)) {
      bytes = reconfiguration_.write_more(r, identity(), out);
    } else {
      continue;
    }
    p.out_busy = true;
    ++p.told;
    hold.unlock();
    const bool sent = transport_->send(r, kControlChannel, {p.out.get(), bytes}, control_op(kNote, r)).ok();
    hold.take();
    if (sent) continue;
    p.out_busy = false;
    if (rounds_.agreed()) tell_callers();
  }
}

}  // namespace tithe::engine
