// SPDX-License-Identifier: Apache-2.0
// Receiving and sending on the control channel.
//
// Threads: only the communication lane (or the waiting caller, without lanes), except end_work(). All under the
// runner's mutex; only send_pending() unlocks it, while the transport accepts a message.
// Owners: each peer has one posted receive and at most one message in flight, in memory of its Peer. The next note
// waits until the transport has completed the previous one.
// Failure: a message that breaks the protocol is blamed on its sender. If strangers can send, a message without the
// job's tag is ignored. Over authenticated connections such a message comes from the peer, and is damaged.
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
  if (rounds_.agreed()) wake_callers();  // callers no longer wait for messages to it
}

// Handles a completed control operation. The receive is posted again before the message is handled.
void Runner::complete_control(const Completion& done) {
  const auto peer = static_cast<Rank>(done.op & 0xffffffffU);
  const auto kind = static_cast<ControlOp>(done.op >> 32 & 0x7fffffffU);
  Peer& p = at(peer);
  if (kind == kFarewellOp) shutdown_.message_sent();
  if (kind == kControlSend) --shown_;
  if (kind == kPendingSend) {
    p.out_busy = false;
    pending_ = true;
    if (rounds_.agreed()) wake_callers();
  }
  if (kind != kControlRecv) return;
  if (done.status.code() == Code::kTooSmall && member_.strangers) {  // no rank writes such a long message
    ++recorder_.stats().strange;
    return listen(peer);
  }
  if (done.status.code() == Code::kTooSmall)
    return fail({Finding::kAccused,
                 {Code::kCorrupt, fmt::format("a control message of rank {} is too long", peer), peer}});
  if (!done.status.ok()) {
    lose(p, done.status);
    if (done.status.code() == Code::kCorrupt)  // later messages of the peer cannot be trusted
      return fail({Finding::kAccused, {Code::kCorrupt, done.status.what(), peer}});
    liveness_.check_soon();  // an awaited peer may have no other operation in flight
    return;
  }
  p.control_bytes += done.bytes;
  Result<Control> control = read_control(ByteView(p.in.get(), done.bytes), identity(), peer, p.numbers);
  listen(peer);
  if (!control.ok() && control.status().peer() == Status::kNoPeer && member_.strangers) {
    ++recorder_.stats().strange;  // from a stranger: ignored
    return;
  }
  if (!control.ok())
    return fail({Finding::kAccused, {control.status().code(), control.status().what(), peer}});
  take(peer, *control);
  ++p.messages_received;
  p.last_message = transport_->now();
}

// Dispatches a control message. The memory that a peer's messages can occupy is bounded.
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
  // A peer ends a round only after it has committed the previous one, which needs this rank's done message.
  const bool news = done.ended > p.done || (done.ended == p.done && done.begun > p.begun);
  if (!news || done.ended > rounds_.ended() + 1 || done.begun < done.ended || done.begun > done.ended + 1)
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {} reports {} ended and {} begun rounds, this rank is in round {}", peer,
                              done.ended, done.begun, rounds_.ended() + 1),
                  peer}});
  p.done = done.ended;
  p.begun = done.begun;
  p.away_ns = done.away_ns;
  p.finite[done.ended % 2] = done.finite;
  liveness_.record_sign(p, true);
  finish_round();
}

void Runner::take_card(Rank peer, Card& card) {
  if (!shutdown_.open()) return;
  Peer& p = at(peer);
  const std::uint32_t next = p.first_card + static_cast<std::uint32_t>(p.cards.size());
  if (card.number != next)
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {} sent the description of layout {}, its next layout is {}", peer,
                              card.number, next),
                  peer}});
  if (p.cards.size() == kMostCardsAhead)
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {} sent descriptions of more than {} layouts that this rank has not seen",
                              peer, kMostCardsAhead),
                  peer}});
  if (card.number < queue_.jobs().size()) liveness_.record_sign(p, true);
  const Announcement entry = entry_of(card);
  p.cards.push(std::move(card));
  match_cards();
  if (entry.place != kNoPlace) take_announcement(peer, entry);
  if (!shutdown_.open()) return;
  for (const auto& job : queue_.jobs()) release(*job);
}

void Runner::take_announcement(Rank peer, const Announcement& announcement) {
  if (!shutdown_.open()) return;
  // The peer needs this rank's done message for the previous round first.
  if (announcement.ended > rounds_.ended())
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {} announced a bucket after {} rounds, this rank has ended {} rounds",
                              peer, announcement.ended, rounds_.ended()),
                  peer}});
  const bool held = order_.holds();
  if (order_.awaits(peer)) liveness_.record_sign(at(peer), true);
  if (const Status s = order_.take(peer, announcement); !s.ok()) return fail({Finding::kAccused, s});
  pending_ = true;  // this rank may have to announce its own entry
  if (held && !order_.holds())
    for (const auto& job : queue_.jobs()) release(*job);
}

void Runner::take_report(Rank peer, const Control& control) {
  if (!shutdown_.open()) return;
  Peer& p = at(peer);
  const Report& r = control.report;
  // The control channel is ordered, so the peer's earlier messages have arrived or are lost. If strangers can send, a
  // damaged message is indistinguishable from a stranger's and was ignored; without this check the wait for it would
  // not end.
  if (r.told > p.messages_received)
    return fail({Finding::kAccused,
                 {Code::kCorrupt,
                  fmt::format("rank {}: {} of its control messages were damaged or lost", peer,
                              r.told - p.messages_received),
                  peer}});
  if (control.kind == ControlKind::kAsk) {
    p.answer_pending = pending_ = true;
    p.answer_number = r.number;
  } else if (r.number <= p.answers || r.number > p.asks) {
    return fail({Finding::kAccused,
                 {Code::kCorrupt, fmt::format("rank {} sent an answer without a request", peer), peer}});
  } else {
    p.answers = r.number;
    liveness_.record_sign(p, false);
  }
  liveness_.take_report(p, r);
}

// A farewell completes the peer's failure report; the evidence that precedes it gives the finding and the unheard
// ranks. A peer that leaves between rounds does not fail this session until a round needs it.
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
  if (!shutdown_.take_report(peer, t)) return;
  learn_of_commit(t);
  if (!shutdown_.open()) return;
  if (t.finding == Finding::kLeft && t.blamed == peer) {
    p.leaving = true;
    liveness_.check_soon();
    if (t.code == Code::kCancelled || !watching()) return;
  }
  fail({t.finding, {t.code, t.what, t.blamed}, t.witness});
}

// An echo forwards the report of a rank from which this rank receives nothing.
void Runner::take_echo(Rank peer, const Echo& echo) {
  if (echo.of == member_.me || echo.of == peer || !shutdown_.in_progress()) return;
  if (shutdown_.take_echo(peer, echo)) learn_of_commit(echo.failure_report);
}

// A rank that has committed a round has received the done messages of all ranks. So this rank may commit it too.
void Runner::learn_of_commit(const FailureReport& t) {
  if (!rounds_.waits() || t.round <= rounds_.round()) return;
  rounds_.agree(t.finite);
  wake_callers();
}

// ---- The end of a round

// Ends this rank's work for a closing round, on the thread that finishes the last job. Waking a caller to do it would
// add two thread switches to every round.
void Runner::end_work() {
  if (!rounds_.closes() || queue_.active() > 0 || !shutdown_.open()) return;
  liveness_.begin();  // other ranks may have computed until now
  if (member_.me == 0) reconfiguration_.decide(rounds_.ended() + 1);
  rounds_.end_work(instant());
  finish_round();
  pending_ = true;
  wake_poll();
}

// The round is agreed when every rank has ended it; it is committed if it was finite on all ranks.
void Runner::finish_round() {
  // This rank's farewell must stay true: after sending it, only another rank's commit can agree the round.
  if (!rounds_.waits() || shutdown_.report_sent()) return;
  for (Rank r = 0; r < member_.world; ++r)
    if (r != member_.me && at(r).done < rounds_.ended()) return;
  bool finite = rounds_.ended_finite();
  for (Rank r = 0; r < member_.world; ++r)
    finite = finite && (r == member_.me || at(r).finite[rounds_.ended() % 2]);
  rounds_.agree(finite);
  wake_callers();
}

Report Runner::report_to(Rank peer, std::uint32_t number) {
  Report report = liveness_.report_to(peer, number);
  report.told = at(peer).messages_sent;
  return report;
}

bool Runner::done_messages_pending() const {
  for (Rank r = 0; r < member_.world; ++r) {
    const Peer& p = peers_[static_cast<std::size_t>(r)];
    if (r != member_.me && !p.gone && (p.done_sent < rounds_.ended() || p.out_busy)) return true;
  }
  return false;
}

// Sends each peer its most important note, if the previous one is completed. The order is: a decision, an
// announcement, a done message, an answer, an ask, a fragment of a proposal. An announcement follows the done message
// of the previous round. A decision precedes the done message of the round to which it applies (reconfiguration.h).
void Runner::send_pending(Hold& hold) {
  if (!std::exchange(pending_, false)) return;
  for (Rank r = 0; r < member_.world; ++r) {
    Peer& p = at(r);
    if (r == member_.me || p.out_busy || p.gone || !shutdown_.open()) continue;
    std::size_t bytes = 0;
    const Bytes out(p.out.get(), kControlBytes);
    if (reconfiguration_.decision_pending(r)) {
      bytes = reconfiguration_.write_pending_decision(r, identity(), out);
    } else if (order_.has_pending_for(r) && order_.pending_round(r) <= p.done_sent) {
      bytes = write_announcement(order_.pop_pending(r), identity(), out);
    } else if (p.done_sent < rounds_.ended() || (proxy_trigger_.on() && p.begun_sent < rounds_.begun())) {
      p.done_sent = rounds_.ended();
      p.begun_sent = rounds_.begun();
      bytes = write_done({p.done_sent, p.begun_sent, away_ns_, rounds_.ended_finite()}, identity(), out);
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
    ++p.messages_sent;
    hold.unlock();
    const bool sent =
        transport_->send(r, kControlChannel, {p.out.get(), bytes}, control_op(kPendingSend, r)).ok();
    hold.take();
    if (sent) continue;
    p.out_busy = false;
    if (rounds_.agreed()) wake_callers();
  }
}

}  // namespace tithe::engine
