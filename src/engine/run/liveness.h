// SPDX-License-Identifier: Apache-2.0
#pragma once
// Liveness tracks the ranks that this rank waits for, and the time since each last sent anything. It owns the
// clocks here and in each Peer, and reads the queue and the rounds. It has no effect except the trouble that it
// returns. Under the runner's mutex; check() runs on the communication lane.
#include <optional>

#include "engine/run/bucket_order.h"
#include "engine/run/queue.h"
#include "engine/run/rounds.h"

namespace tithe::engine {

// The part of SessionOptions that the runner uses.
struct WaitLimits {
  std::chrono::nanoseconds timeout;
  std::chrono::nanoseconds patience;
  std::function<bool()> interrupted;
};

class Liveness {
 public:
  Liveness(const Member& member, const WaitLimits& limits, std::vector<Peer>& peers, const Queue& queue,
           const Rounds& rounds, const BucketOrder& order, Transport& transport);

  // True if this rank waits for other ranks.
  bool waits() const { return queue_.active() > 0 || rounds_.waits(); }
  void begin();  // starts a wait: earlier silence does not count
  // Restarts the peer's clocks. progress: the peer sent more than an answer.
  void record_sign(Peer& peer, bool progress) { record_sign(peer, progress, transport_.now()); }
  static void record_sign(Peer& peer, bool progress, Instant now);
  void take_report(Peer& peer, const Report& report);  // from an ask or an answer
  Report report_to(Rank peer, std::uint32_t number);

  Instant next_check() const { return next_check_; }
  void check_soon() { next_check_ = {}; }
  // Checks all clocks. Sets Peer::ask_pending for peers that must be asked. Returns a failure if there is one.
  std::optional<Trouble> check();
  std::vector<Rank> silent_ranks() const;  // peers that have not answered for half a timeout

 private:
  // The messages that this rank awaits from another rank, and since when.
  struct Awaited {
    bool must_send = false;  // the peer must send a message
    bool control = false;    // a control message is one of them
    bool outgoing = false;   // a message of this rank to the peer is in flight
    Instant since = {};
  };
  Peer& at(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  const Peer& at(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }
  void discount_pause(Instant now);
  void count_bytes(Instant now);
  void find_awaited();  // fills awaited_
  std::optional<Trouble> check_peer(Rank peer, const Awaited& a, Instant now) const;
  Trouble idle(std::chrono::nanoseconds waited) const;

  const Member& member_;
  const WaitLimits& limits_;
  std::vector<Peer>& peers_;  // by rank
  const Queue& queue_;
  const Rounds& rounds_;
  const BucketOrder& order_;
  Transport& transport_;
  std::vector<Awaited> awaited_;  // by rank; reused
  Instant floor_ = {};            // clocks start here at the earliest
  Instant checked_ = {}, next_check_ = {};
  Instant arrived_ = {};  // when frame bytes last arrived, from any rank
};

}  // namespace tithe::engine
