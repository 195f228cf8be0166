// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that the parts of a runner share: all of it under the mutex in `lock`, except the constants. Each member
// has its own contract in its header; this struct fixes only the order of destruction: the transport is destroyed
// before the memory that it borrows, and after the parts that refer to it.
#include "engine/peers/reconfiguration.h"
#include "engine/run/bucket_order.h"
#include "engine/run/recorder.h"
#include "engine/run/runner_lock.h"
#include "engine/run/send_window.h"
#include "engine/run/shutdown.h"

namespace tithe::engine {

// The part of SessionOptions that the runner uses.
struct WaitLimits {
  std::chrono::nanoseconds timeout;
  std::chrono::nanoseconds patience;
  std::function<bool()> interrupted;
};

inline std::vector<Rank> ranks_without(Rank me, int world) {
  std::vector<Rank> ranks;
  for (Rank r = 0; r < world; ++r)
    if (r != me) ranks.push_back(r);
  return ranks;
}

struct RunnerState {
  const Member member;
  const WaitLimits limits;
  const std::vector<Rank> others = ranks_without(member.me, member.world);
  std::vector<Peer> peers = std::vector<Peer>(static_cast<std::size_t>(member.world));  // by rank
  Queue queue = {};                            // owns the jobs; a job owns its unit and frames
  Shutdown shutdown{member, limits.timeout};   // owns the farewells
  const std::unique_ptr<Transport> transport;  // borrows memory of the members above
  SendWindow send_window{{}, member.me, member.world};
  Rounds rounds{member.me, peers};
  BucketOrder order{member.me, member.world};
  Reconfiguration reconfiguration{member};
  Recorder recorder{member.workers};
  EndedTickets tickets{nullptr};
  ProxyTimer proxy{{}};
  mutable RunnerLock lock{*transport, tickets, proxy};

  // All times use the transport's clock, which is virtual in a simulation.
  Instant now() const { return transport->now(); }
  // The time for a trace event; 0 without tracing.
  std::int64_t trace_ns() const { return recorder.on() ? in_ns(now()) : 0; }
  Peer& peer(Rank r) { return peers[static_cast<std::size_t>(r)]; }
};

}  // namespace tithe::engine
