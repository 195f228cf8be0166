// SPDX-License-Identifier: Apache-2.0
#pragma once
// Liveness tracks the ranks that this rank waits for, and the time since each was last heard. It owns its own clocks,
// and those in each Peer; it reads the queue and the rounds, and decides nothing but what it returns as trouble.
// Under the runner's mutex; look() on the communication lane.
#include <optional>

#include "engine/run/bucket_order.h"
#include "engine/run/queue.h"
#include "engine/run/rounds.h"

namespace tithe::engine {

// SessionOptions, as far as they concern the runner.
struct WaitLimits {
  std::chrono::nanoseconds timeout;
  std::chrono::nanoseconds patience;
  std::function<bool()> interrupted;
};

class Liveness {
 public:
  Liveness(const Member& member, const WaitLimits& limits, std::vector<Peer>& peers, const Queue& queue,
           const Rounds& rounds, const BucketOrder& order, Transport& transport);

  // True if this rank waits for anything of others.
  bool needed() const { return queue_.active() > 0 || rounds_.waits(); }
  void begin();  // to wait: whatever was not heard before counts against nobody
  void hear(Peer& peer, bool gained) { hear(peer, gained, transport_.now()); }
  static void hear(Peer& peer, bool gained, Instant now);
  void take(Peer& peer, const Report& report);  // from an ask or its answer
  Report report_to(Rank peer, std::uint32_t number);

  Instant next_look() const { return next_look_; }
  void look_soon() { next_look_ = {}; }
  // Checks all clocks. Sets Peer::ask_pending for peers that must be asked.
  std::optional<Trouble> look();
  std::vector<Rank> unheard() const;  // whom this rank asked half a timeout ago and does not hear

 private:
  // The things that this rank waits for from another one, and since when.
  struct Awaited {
    bool must_send = false;  // it has to send something
    bool says = false;       // and that on the control channel
    bool takes = false;      // something is on its way to it
    Instant since = {};
  };
  Peer& at(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  const Peer& at(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }
  void forgive(Instant now);
  void count_bytes(Instant now);
  void await();  // fills awaited_
  std::optional<Trouble> look_at(Rank peer, const Awaited& a, Instant now) const;
  Trouble idle(std::chrono::nanoseconds waited) const;

  const Member& member_;
  const WaitLimits& limits_;
  std::vector<Peer>& peers_;  // by rank
  const Queue& queue_;
  const Rounds& rounds_;
  const BucketOrder& order_;
  Transport& transport_;
  std::vector<Awaited> awaited_;  // by rank; reused
  Instant floor_ = {};            // no clock counts from before: this rank waited for nobody
  Instant looked_ = {}, next_look_ = {};
  Instant arrived_ = {};  // when bytes of steps last came, from anybody
};

}  // namespace tithe::engine
