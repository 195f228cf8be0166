// SPDX-License-Identifier: Apache-2.0
#include "engine/peers/reconfiguration.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::engine {
namespace {

Status wrong(Rank peer, std::string_view what) {
  return {Code::kCorrupt, fmt::format("rank {} {}", peer, what), peer};
}

}  // namespace

Reconfiguration::Reconfiguration(const Member& member)
    : member_(member), others_(static_cast<std::size_t>(member.world)) {}

// ---- Building on this rank

std::optional<Reconfiguration::Work> Reconfiguration::next_work() {
  if (!gone_.empty()) {
    const Work work{.number = gone_.back()};
    gone_.pop_back();
    return work;
  }
  if (!has_text()) return std::nullopt;
  staged_ = {.stage = Staged::Stage::kBuilds, .number = incoming_.number};
  news_ = {.state = State::kUnderWay};
  return Work{.number = incoming_.number, .builds = true, .text = std::exchange(incoming_, {}).text};
}

void Reconfiguration::built(Answer answer) {
  const bool ok = answer.code == Code::kOk;
  if (staged_.given_up) {
    if (ok) gone_.push_back(staged_.number);
    staged_ = {};
    return;
  }
  staged_.stage = ok ? Staged::Stage::kBuilt : Staged::Stage::kFailed;
  if (member_.me != 0) {
    answer_ = std::move(answer);
    return;
  }
  own_.hash = answer.hash;
  if (!ok) refuse({answer.code, answer.why}, 0);
  for (Rank r = 1; r < member_.world && under_way(); ++r)  // answers that arrived before rank 0 had built
    if (at(r).ready && at(r).hash != own_.hash) refuse(differs(r), r);
}

bool Reconfiguration::switch_over(std::uint64_t ended) {
  if (staged_.stage != Staged::Stage::kAgreed || staged_.after != ended) return false;
  news_ = {State::kSwitched, ended, {}};
  own_ = {};
  staged_ = {};
  return true;
}

// Applies the decision on this rank. A refused build that is still running is marked; built() then discards it.
void Reconfiguration::apply(const Decision& decision) {
  if (decision.after > 0) {
    staged_.stage = Staged::Stage::kAgreed;
    staged_.after = decision.after;
    news_ = {State::kAgreed, decision.after, {}};
    return;
  }
  news_ = {State::kRefused, 0, {decision.code, decision.why, decision.blamed}};
  if (incoming_.number == decision.number) incoming_ = {};
  if (staged_.number != decision.number) return;
  answer_.reset();
  if (staged_.stage == Staged::Stage::kBuilds) {
    staged_.given_up = true;
    return;
  }
  if (staged_.stage == Staged::Stage::kBuilt) gone_.push_back(staged_.number);
  staged_ = {};
}

// ---- Rank 0

void Reconfiguration::propose(std::string text, std::uint64_t after) {
  TITHE_ASSERT(!under_way());
  own_ = {.number = ++last_, .text = text, .wanted = after};
  for (Other& o : others_) {
    o.sent = 0;
    o.ready = false;
  }
  incoming_ = {.number = last_, .whole = own_.text.size(), .text = std::move(text)};
  news_ = {.state = State::kUnderWay};
}

Status Reconfiguration::differs(Rank peer) {
  return {Code::kMismatch,
          fmt::format("rank {} parsed other choices than rank 0: install the same codec files on all ranks",
                      peer),
          peer};
}

std::optional<Rank> Reconfiguration::first_that_is_not_ready() const {
  if (staged_.number != own_.number || staged_.stage != Staged::Stage::kBuilt) return 0;
  for (Rank r = 1; r < member_.world; ++r)
    if (!at(r).ready) return r;
  return std::nullopt;
}

// Called before rank 0 ends its round number `next`. If all ranks are ready, the choices apply after that round, or
// after the requested one. If not, the proposal waits, unless the requested round is due: then it is refused.
void Reconfiguration::decide(std::uint64_t next) {
  if (!under_way() || own_.after > 0) return;
  if (const std::optional<Rank> late = first_that_is_not_ready()) {
    if (own_.wanted > 0 && own_.wanted <= next)
      refuse({Code::kTimeout, fmt::format("rank {} was not ready in time for the requested round: propose a "
                                          "later round, or round 0, which waits until all ranks are ready",
                                          *late)},
             *late);
    return;
  }
  if (own_.wanted > 0 && own_.wanted < next)
    return refuse({Code::kInvalid, "the requested round has begun: propose a later round, or round 0"}, 0);
  own_.after = own_.wanted > 0 ? own_.wanted : next;
  own_.text = {};
  const Decision decision{.number = own_.number, .after = own_.after};
  for (Rank r = 1; r < member_.world; ++r) at(r).decision = decision;
  apply(decision);
}

// Refuses the proposal. A rank to which no fragment was sent needs no decision.
void Reconfiguration::refuse(const Status& why, Rank blamed) {
  const Decision decision{.number = own_.number, .code = why.code(), .blamed = blamed, .why = why.what()};
  for (Rank r = 1; r < member_.world; ++r)
    if (at(r).sent > 0) at(r).decision = decision;
  own_ = {};
  apply(decision);
}

Status Reconfiguration::take(Rank peer, const Answer& answer) {
  if (member_.me != 0) return wrong(peer, "answered a proposal that was not sent to it");
  if (answer.number < own_.number || (!under_way() && answer.number <= last_))
    return {};  // the proposal was refused meanwhile
  if (answer.number != own_.number || at(peer).ready || at(peer).sent < own_.text.size() || own_.after > 0)
    return wrong(peer, "answered a proposal that it did not receive");
  if (answer.code != Code::kOk) {
    refuse({answer.code, fmt::format("rank {}: {}", peer, answer.why)}, peer);
    return {};
  }
  at(peer).ready = true;
  at(peer).hash = answer.hash;
  const bool known = staged_.number == own_.number && staged_.stage == Staged::Stage::kBuilt;
  if (known && answer.hash != own_.hash) refuse(differs(peer), peer);
  return {};
}

// ---- Other ranks

Status Reconfiguration::take(Rank peer, Fragment& f) {
  if (peer != 0) return wrong(peer, "proposed choices, but only rank 0 may propose");
  if (f.first == 0) {
    if (incoming_.number > 0 || f.number <= last_)
      return wrong(peer, "proposed choices while another proposal of it is pending");
    last_ = f.number;
    incoming_ = {.number = f.number, .whole = f.whole, .text = {}};
    if (news_.state != State::kAgreed) news_ = {.state = State::kUnderWay};
  }
  if (f.number != incoming_.number || f.whole != incoming_.whole || f.first != incoming_.text.size())
    return wrong(peer, "proposed choices in fragments that do not fit together");
  incoming_.text += f.piece;
  return {};
}

// `coming`: its fragments are arriving. `here`: it is staged on this rank. A decision to switch requires that this
// rank has built and answered, and that rank 0 has not ended the round before.
Status Reconfiguration::take(Rank peer, const Decision& d, std::uint64_t ended_by_peer) {
  if (peer != 0) return wrong(peer, "decided on choices, but only rank 0 may decide");
  const bool coming = incoming_.number > 0 && d.number == incoming_.number;
  const bool here = staged_.stage != Staged::Stage::kNone && d.number == staged_.number && !staged_.given_up;
  const bool ready = here && staged_.stage == Staged::Stage::kBuilt && !answer_;
  const bool open = coming || (here && staged_.stage != Staged::Stage::kAgreed);
  if (d.after > 0 ? !ready || d.after <= ended_by_peer : !open)
    return wrong(peer, "sent an impossible decision on choices");
  apply(d);
  return {};
}

// ---- Messages to send

bool Reconfiguration::fragments_pending(Rank peer) const {
  if (member_.me != 0) return peer == 0 && answer_.has_value();
  return under_way() && own_.after == 0 && at(peer).sent < own_.text.size();
}

std::size_t Reconfiguration::write_pending_decision(Rank peer, const ControlIdentity& identity, Bytes out) {
  const std::size_t bytes = write_decision(*at(peer).decision, identity, out);
  at(peer).decision.reset();
  return bytes;
}

std::size_t Reconfiguration::write_more(Rank peer, const ControlIdentity& identity, Bytes out) {
  if (member_.me != 0) {
    const std::size_t bytes = write_answer(*answer_, identity, out);
    answer_.reset();
    return bytes;
  }
  std::size_t& sent = at(peer).sent;
  const std::size_t bytes = write_fragment({.number = own_.number,
                                            .first = static_cast<std::uint32_t>(sent),
                                            .whole = static_cast<std::uint32_t>(own_.text.size()),
                                            .piece = own_.text.substr(sent, kMaxFragment)},
                                           identity, out);
  sent = std::min(sent + kMaxFragment, own_.text.size());
  return bytes;
}

}  // namespace tithe::engine
