// SPDX-License-Identifier: Apache-2.0
#pragma once
// A transport moves bytes between ranks and knows no codec. What every transport promises, and
// tests/conformance/transport_suite.cc checks:
//   in_order    between two ranks, messages on one channel arrive in the order in which they were sent
//   whole       a message arrives whole or not at all; a receive buffer that is too small completes with kTooSmall
//   one_answer  every posted operation completes exactly once: done, cancelled, or with the Status that says why not
//   names_peer  when a peer is gone, every operation with it completes with its rank and kPeerLost; or kTimeout where
//               nothing says that it has ended, only that it does not answer
//   farewell    what a peer sent before it closed in good order still arrives; after that it is gone
//   apart       operations with other peers go on
//   counted     the bytes of a long message count as received while the rest of it is still on its way
//   quiet       no thread of its own, nothing printed
//   its_clock   time passes as now() says: a simulated transport has a clock of its own
// One thread at a time calls a transport; wake() and now() may be called from any thread.
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe {

using Rank = int;
using Channel = std::uint32_t;  // 0 is the control channel (plans, farewells); one more per partition
using OpId = std::uint64_t;     // the caller's name for an operation

struct Completion {
  OpId op = 0;
  std::size_t bytes = 0;  // received
  Status status;          // says what happened, and peer() to whom; who reports it puts the rank in front
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view kind() const = 0;  // its name in transports.def
  virtual Rank rank() const = 0;
  virtual int world() const = 0;
  // A key that the ranks of this job alone share, new each time they meet: frames are tagged with it. Empty where no
  // stranger can send: ranks as threads of one process.
  virtual ByteView key() const { return {}; }

  // Bytes stay untouched (send) or unread (recv) until the operation completes. Never blocks.
  virtual Status send(Rank peer, Channel channel, ByteView bytes, OpId op) = 0;
  virtual Status recv(Rank peer, Channel channel, Bytes into, OpId op) = 0;

  // Makes progress; returns how many completions were stored. Waits at most `wait` for the first one.
  virtual std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) = 0;
  virtual void wake() = 0;  // ends a waiting poll early
  // What timeouts are measured with.
  virtual std::chrono::steady_clock::time_point now() const { return std::chrono::steady_clock::now(); }

  virtual void cancel(OpId op) = 0;  // completes it with kCancelled, unless it completes first
  // What operations with this peer complete with, once it is gone. A graceful close by the peer counts as gone.
  virtual Status peer_status(Rank peer) const = 0;
  // Payload bytes handed to the wire so far, all peers (frames as the engine sees them).
  virtual std::uint64_t bytes_sent() const = 0;
  // Payload bytes from this peer that have arrived for receives so far, on all channels, whether their message is
  // whole yet or not; never falls. Rises during a long message at least once per half a megabyte.
  virtual std::uint64_t bytes_received(Rank peer) const = 0;
};

}  // namespace tithe
