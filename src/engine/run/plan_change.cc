// SPDX-License-Identifier: Apache-2.0
// The runner's part in changes of the plan (reconfiguration.h), and the start of the straggler proxy.
//
// Threads: propose() and proposed() on a caller's thread; take_proposal() and build() on the communication lane (or
// the waiting caller, without lanes); the session's build and discard on the thread of `background_`, without a lock.
// Failure: the answer of the builder is this rank's answer. A message that breaks the protocol is blamed on its
// sender.
#include <fmt/format.h>

#include <algorithm>

#include "engine/run/runner.h"

namespace tithe::engine {

Status Runner::propose(std::string text, std::uint64_t after) {
  Hold hold(*this);
  if (!shutdown_.open()) return shutdown_.verdict();
  if (reconfiguration_.under_way())
    return {Code::kInvalid,
            "a proposal is pending already: proposal() returns its state; propose again when it has been "
            "accepted or refused"};
  if (after > 0 && after <= rounds_.ended())
    return {Code::kInvalid, "the previous round has ended: propose a later round, or round 0"};
  reconfiguration_.propose(std::move(text), after);
  pending_ = true;
  if (lanes_ == 0) build(hold);
  wake_poll();
  return {};
}

Reconfiguration::News Runner::proposed() const {
  const std::lock_guard lock(mutex_);
  return reconfiguration_.news();
}

void Runner::run_in_background(std::function<void()> work) {
  if (lanes_ == 0 || !background_.add(work)) work();
}

void Runner::build(Hold& hold) {
  while (shutdown_.open()) {
    std::optional<Reconfiguration::Work> work = reconfiguration_.next_work();
    if (!work) return;
    hold.unlock();
    run_in_background([this, w = std::move(*work)] { build_now(w); });
    hold.take();
  }
}

void Runner::build_now(const Reconfiguration::Work& work) {
  if (!work.builds) return builder_.discard(work.number);
  Answer answer = builder_.build(work.number, work.text);
  const Hold hold(*this);
  reconfiguration_.built(std::move(answer));
  pending_ = true;
  wake_poll();
}

// ---- Programs that are late

// The proxy is due if enough other ranks have begun a round that this rank has not. With t0 the end of this rank's
// last round and t1 the time at which enough others had begun, it is due at t1 + max(share * (t1 - t0), kLeastLate).
std::optional<Instant> Runner::proxy_due_at() {
  if (!proxy_trigger_.on() || !shutdown_.open() || rounds_.begun() > rounds_.ended() ||
      due_ > rounds_.ended())
    return std::nullopt;
  const auto begun = std::ranges::count_if(peers_, [&](const Peer& p) { return p.begun > rounds_.ended(); });
  if (begun < proxy_trigger_.others_at_least) return std::nullopt;
  if (!late_since_) late_since_ = instant();
  const std::chrono::duration<double, std::nano> more = proxy_trigger_.share * (*late_since_ - free_since_);
  return *late_since_ + std::max<std::chrono::nanoseconds>(
                            kLeastLate, std::chrono::duration_cast<std::chrono::nanoseconds>(more));
}

bool Runner::away(std::span<std::uint64_t> out) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const bool mine = static_cast<Rank>(r) == member_.me;
    if (!mine && peers_[r].done != rounds_.ended()) return false;
    out[r] = mine ? away_ns_ : peers_[r].away_ns;
  }
  return true;
}

void Runner::take_proposal(Rank peer, Control& control) {
  if (!shutdown_.open()) return;
  const Status s = control.kind == ControlKind::kFragment ? reconfiguration_.take(peer, control.fragment)
                   : control.kind == ControlKind::kAnswer
                       ? reconfiguration_.take(peer, control.answer)
                       : reconfiguration_.take(peer, control.decision, at(peer).done);
  if (!s.ok()) return fail({Finding::kAccused, s});
  pending_ = true;  // there may be a decision or a fragment to send
}

}  // namespace tithe::engine
