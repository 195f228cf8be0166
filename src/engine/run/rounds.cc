// SPDX-License-Identifier: Apache-2.0
#include "engine/run/rounds.h"

#include <fmt/format.h>

namespace tithe::engine {

// A peer ends a round only after it has committed the previous one, which needs this rank's done message.
Status Rounds::take_done(Rank peer, const Done& done) {
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  const bool news = done.ended > p.done || (done.ended == p.done && done.begun > p.begun);
  if (!news || done.ended > ended_ + 1 || done.begun < done.ended || done.begun > done.ended + 1)
    return {Code::kCorrupt,
            fmt::format("rank {} reports {} ended and {} begun rounds, this rank is in round {}", peer,
                        done.ended, done.begun, ended_ + 1),
            peer};
  p.done = done.ended;
  p.begun = done.begun;
  p.away_ns = done.away_ns;
  p.finite[done.ended % 2] = done.finite;
  return {};
}

bool Rounds::agree_if_all_ended() {
  if (!waits()) return false;
  bool finite = ended_finite_;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (static_cast<Rank>(r) == me_) continue;
    if (peers_[r].done < ended_) return false;
    finite = finite && peers_[r].finite[ended_ % 2];
  }
  agree(finite);
  return true;
}

bool Rounds::learn_of_commit(const FailureReport& report) {
  if (!waits() || report.round <= round_) return false;
  agree(report.finite);
  return true;
}

bool Rounds::away(std::span<std::uint64_t> out) const {
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const bool mine = static_cast<Rank>(r) == me_;
    if (!mine && peers_[r].done != ended_) return false;
    out[r] = mine ? away_ns_ : peers_[r].away_ns;
  }
  return true;
}

}  // namespace tithe::engine
