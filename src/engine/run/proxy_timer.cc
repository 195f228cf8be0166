// SPDX-License-Identifier: Apache-2.0
#include "engine/run/proxy_timer.h"

#include <algorithm>

namespace tithe::engine {

std::optional<Instant> ProxyTimer::check(const Rounds& rounds, std::span<const Peer> peers, Instant now) {
  if (!on() || rounds.begun() > rounds.ended() || ran_ > rounds.ended()) return std::nullopt;
  const auto begun = std::ranges::count_if(peers, [&](const Peer& p) { return p.begun > rounds.ended(); });
  if (begun < trigger_.others_at_least) return std::nullopt;
  if (!late_since_) late_since_ = now;
  const std::chrono::duration<double, std::nano> more = trigger_.share * (*late_since_ - round_end_);
  const Instant due =
      *late_since_ + std::max<std::chrono::nanoseconds>(
                         kMinLate, std::chrono::duration_cast<std::chrono::nanoseconds>(more));
  if (due > now) return due;
  pending_ = ran_ = rounds.ended() + 1;
  return std::nullopt;
}

}  // namespace tithe::engine
