// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decides when the straggler proxy begins a round for this rank's program (session/straggler_proxy.h). The proxy is
// due if enough other ranks have begun a round that this rank has not begun for too long: with t0 the end of this
// rank's last round and t1 the time at which enough others had begun, it is due at t1 + max(share * (t1 - t0),
// kMinLate). Owns these times and the callback.
//
// All functions require the runner's mutex, except run(): the thread that has just unlocked it calls run().
#include <functional>
#include <optional>
#include <span>

#include "engine/run/rounds.h"

namespace tithe::engine {

struct ProxyTrigger {
  int others_at_least = 0;  // other ranks that have begun the round; 0: no proxy
  double share = 0;         // a rank is late if it exceeds their time by this share
  // Called without the mutex, on a lane of this session, once per round, with the number of ended rounds.
  std::function<void(std::uint64_t ended)> due = {};
  bool on() const { return others_at_least > 0; }
};

class ProxyTimer {
 public:
  explicit ProxyTimer(ProxyTrigger trigger) : trigger_(std::move(trigger)) {}

  bool on() const { return trigger_.on(); }
  void end_round(Instant now) {  // or begins the session
    round_end_ = now;
    late_since_.reset();
  }
  // Returns the time of the next check, if there is one. If the proxy is due now, take_pending() returns a round.
  std::optional<Instant> check(const Rounds& rounds, std::span<const Peer> peers, Instant now);
  bool pending() const { return pending_ > 0; }
  // Once after check(): 1 + the number of ended rounds, for run(); 0: the proxy is not due.
  std::uint64_t take_pending() { return std::exchange(pending_, 0); }
  void run(std::uint64_t pending) const { trigger_.due(pending - 1); }

 private:
  const ProxyTrigger trigger_;
  std::uint64_t pending_ = 0;
  std::uint64_t ran_ = 0;  // 1 + the ended rounds when the proxy was last due
  Instant round_end_ = {};
  // Since then, enough others have begun a round that this rank has not.
  std::optional<Instant> late_since_;
};

}  // namespace tithe::engine
