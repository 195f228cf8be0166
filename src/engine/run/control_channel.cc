// SPDX-License-Identifier: Apache-2.0
#include "engine/run/control_channel.h"

#include <fmt/format.h>

#include "engine/run/operations.h"

namespace tithe::engine {

void ControlChannel::listen() {
  for (const Rank r : state_.others) {
    state_.peer(r).out = make_arena(kControlBytes);
    state_.peer(r).in = make_arena(kControlBytes);
    listen(r);
  }
}

void ControlChannel::listen(Rank peer) {
  if (state_.peer(peer).gone) return;
  const Bytes into(state_.peer(peer).in.get(), kControlBytes);
  if (Status s = state_.transport->recv(peer, kControlChannel, into, control_op(kControlRecv, peer)); !s.ok())
    failures_.lose(peer, std::move(s));
}

// ---- Receiving

// The receive is posted again before the message is handled.
void ControlChannel::complete(const Completion& done) {
  const auto peer = static_cast<Rank>(done.op & 0xffffffffU);
  const auto kind = static_cast<ControlOp>(done.op >> 32 & 0x7fffffffU);
  Peer& p = state_.peer(peer);
  if (kind == kFarewellOp) state_.shutdown.message_sent();
  if (kind == kControlSend) --cards_in_flight_;
  if (kind == kPendingSend) {
    p.out_busy = false;
    pending_ = true;
    if (state_.rounds.agreed()) state_.lock.wake_callers();
  }
  if (kind != kControlRecv) return;
  if (done.status.code() == Code::kTooSmall &&
      state_.member.strangers) {  // no rank writes such a long message
    ++state_.recorder.stats().messages_ignored;
    return listen(peer);
  }
  if (done.status.code() == Code::kTooSmall)
    return accuse(peer, fmt::format("a control message of rank {} is too long", peer));
  if (!done.status.ok()) {
    failures_.lose(peer, done.status);
    if (done.status.code() == Code::kCorrupt)  // later messages of the peer cannot be trusted
      return accuse(peer, done.status.what());
    return failures_.check_soon();  // an awaited peer may have no other operation in flight
  }
  p.control_bytes += done.bytes;
  Result<Control> control =
      read_control(ByteView(p.in.get(), done.bytes), identity_of(state_.member), peer, p.numbers);
  listen(peer);
  if (!control.ok() && control.status().peer() == Status::kNoPeer && state_.member.strangers) {
    ++state_.recorder.stats().messages_ignored;  // from a stranger: ignored
    return;
  }
  if (!control.ok()) return failures_.accuse({control.status().code(), control.status().what(), peer});
  take(peer, *control);
  ++p.messages_received;
  p.last_message = state_.now();
}

void ControlChannel::accuse(Rank peer, std::string what) {
  failures_.accuse({Code::kCorrupt, std::move(what), peer});
}

void ControlChannel::take(Rank peer, Control& control) {
  switch (control.kind) {
    case ControlKind::kEvidence:
      if (!state_.peer(peer).evidence) state_.peer(peer).evidence = std::move(control.evidence);
      return;
    case ControlKind::kFarewell:
      return take_farewell(peer, control.farewell);
    case ControlKind::kEcho:  // the report of a rank from which this rank receives nothing
      if (control.echo.of == state_.member.me || control.echo.of == peer || !state_.shutdown.in_progress())
        return;
      if (state_.shutdown.take_echo(peer, control.echo)) agree_round(&control.echo.failure_report);
      return;
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

void ControlChannel::take_done(Rank peer, const Done& done) {
  if (const Status s = state_.rounds.take_done(peer, done); !s.ok()) return failures_.accuse(s);
  failures_.record_sign(state_.peer(peer), true);
  agree_round();
}

void ControlChannel::take_card(Rank peer, Card& card) {
  if (!failures_.open()) return;
  const Announcement entry = entry_of(card);
  const bool awaited = card.number < state_.queue.jobs().size();
  if (const Status s = agreement_.take_card(peer, card); !s.ok()) return failures_.accuse(s);
  if (awaited) failures_.record_sign(state_.peer(peer), true);
  if (const Status s = agreement_.match_cards(); !s.ok()) return failures_.accuse(s);
  if (entry.place != kNoPlace) take_announcement(peer, entry);
  released_ = failures_.open();
}

void ControlChannel::take_announcement(Rank peer, const Announcement& announcement) {
  if (!failures_.open()) return;
  // The peer needs this rank's done message for the previous round first.
  if (announcement.ended > state_.rounds.ended())
    return accuse(
        peer, fmt::format("rank {} announced a bucket after {} rounds, this rank has ended {} rounds", peer,
                          announcement.ended, state_.rounds.ended()));
  const bool held = state_.order.holds();
  if (state_.order.awaits(peer)) failures_.record_sign(state_.peer(peer), true);
  if (const Status s = state_.order.take(peer, announcement); !s.ok()) return failures_.accuse(s);
  pending_ = true;  // this rank may have to announce its own entry
  released_ = held && !state_.order.holds();
}

void ControlChannel::take_report(Rank peer, const Control& control) {
  if (!failures_.open()) return;
  Peer& p = state_.peer(peer);
  const Report& r = control.report;
  // The control channel is ordered, so the peer's earlier messages have arrived or are lost. If strangers can send, a
  // damaged message is indistinguishable from a stranger's and was ignored; without this check the wait for it would
  // not end.
  if (r.messages_sent > p.messages_received)
    return accuse(peer, fmt::format("rank {}: {} of its control messages were damaged or lost", peer,
                                    r.messages_sent - p.messages_received));
  if (control.kind == ControlKind::kAsk) {
    p.answer_pending = pending_ = true;
    p.answer_number = r.number;
  } else if (r.number <= p.answers || r.number > p.asks) {
    return accuse(peer, fmt::format("rank {} sent an answer without a request", peer));
  } else {
    p.answers = r.number;
    failures_.record_sign(p, false);
  }
  failures_.take_report(p, r);
}

// A peer that leaves between rounds does not fail this session until a round needs it.
void ControlChannel::take_farewell(Rank peer, const Farewell& farewell) {
  const FailureReport* report = state_.shutdown.take_farewell(peer, farewell, state_.peer(peer).evidence);
  if (report == nullptr) return;
  const FailureReport& t = *report;
  agree_round(report);
  if (!failures_.open()) return;
  if (t.finding == Finding::kLeft && t.blamed == peer) {
    state_.peer(peer).leaving = true;
    failures_.check_soon();
    if (t.code == Code::kCancelled || !failures_.watching()) return;
  }
  failures_.fail({t.finding, {t.code, t.what, t.blamed}, t.witness});
}

void ControlChannel::take_proposal(Rank peer, Control& control) {
  if (!failures_.open()) return;
  Reconfiguration& r = state_.reconfiguration;
  const Status s = control.kind == ControlKind::kFragment ? r.take(peer, control.fragment)
                   : control.kind == ControlKind::kAnswer
                       ? r.take(peer, control.answer)
                       : r.take(peer, control.decision, state_.peer(peer).done);
  if (!s.ok()) return failures_.accuse(s);
  pending_ = true;  // there may be a decision or a fragment to send
}

// This rank's farewell must stay true: after sending it, only another rank's commit can agree the round.
void ControlChannel::agree_round(const FailureReport* committed) {
  Rounds& rounds = state_.rounds;
  const bool agreed = committed != nullptr ? rounds.learn_of_commit(*committed)
                                           : !state_.shutdown.report_sent() && rounds.agree_if_all_ended();
  if (agreed) state_.lock.wake_callers();
}

// ---- Sending

void ControlChannel::send_soon() {
  pending_ = true;
  state_.lock.wake_poll();
}

bool ControlChannel::done_pending() const {
  if (!state_.rounds.agreed() || state_.now() >= send_deadline()) return false;
  for (const Rank r : state_.others) {
    const Peer& p = state_.peer(r);
    if (!p.gone && (p.done_sent < state_.rounds.ended() || p.out_busy)) return true;
  }
  return false;
}

// The order is: a decision, an announcement, a done message, an answer, an ask, a fragment of a proposal. An
// announcement follows the done message of the previous round. A decision precedes the done message of the round to
// which it applies (reconfiguration.h).
std::size_t ControlChannel::write_pending(Rank peer, Bytes out) {
  Peer& p = state_.peer(peer);
  const ControlIdentity identity = identity_of(state_.member);
  BucketOrder& order = state_.order;
  const Done done = state_.rounds.done();
  if (state_.reconfiguration.decision_pending(peer))
    return state_.reconfiguration.write_pending_decision(peer, identity, out);
  if (order.has_pending_for(peer) && order.pending_round(peer) <= p.done_sent)
    return write_announcement(order.pop_pending(peer), identity, out);
  if (p.done_sent < done.ended || (state_.proxy.on() && p.begun_sent < done.begun)) {
    p.done_sent = done.ended;
    p.begun_sent = done.begun;
    return write_done(done, identity, out);
  }
  if (std::exchange(p.answer_pending, false))
    return write_report(ControlKind::kHere, failures_.report_to(peer, p.answer_number), identity, out);
  if (std::exchange(p.ask_pending, false))
    return write_report(ControlKind::kAsk, failures_.report_to(peer, ++p.asks), identity, out);
  if (state_.reconfiguration.fragments_pending(peer))
    return state_.reconfiguration.write_more(peer, identity, out);
  return 0;
}

void ControlChannel::send_pending(RunnerLock::Hold& hold) {
  if (!std::exchange(pending_, false)) return;
  for (const Rank r : state_.others) {
    Peer& p = state_.peer(r);
    if (p.out_busy || p.gone || !failures_.open()) continue;
    const std::size_t bytes = write_pending(r, {p.out.get(), kControlBytes});
    if (bytes == 0) continue;
    p.out_busy = true;
    ++p.messages_sent;
    hold.unlock();
    const ByteView message(p.out.get(), bytes);
    const bool sent = state_.transport->send(r, kControlChannel, message, control_op(kPendingSend, r)).ok();
    hold.take();
    if (sent) continue;
    p.out_busy = false;
    if (state_.rounds.agreed()) state_.lock.wake_callers();
  }
}

// A failed send of a card is ignored: a lost peer is detected by the messages that are awaited from it.
void ControlChannel::send_cards(RunnerLock::Hold& hold) {
  while (!state_.queue.cards().empty() && failures_.open()) {
    const Job& job = *state_.queue.cards().pop();
    for (Peer& p : state_.peers) ++p.messages_sent;
    hold.unlock();
    std::size_t sent = 0;
    const ByteView card(job.card_frame.get(), job.card_bytes);
    for (const Rank r : state_.others)
      if (state_.transport->send(r, kControlChannel, card, control_op(kControlSend, r)).ok()) ++sent;
    hold.take();
    cards_in_flight_ += sent;
  }
}

}  // namespace tithe::engine
