// SPDX-License-Identifier: Apache-2.0
#pragma once
// A transport moves bytes between ranks and does not depend on codecs. Each transport promises the following, and
// tests/conformance/ checks it:
//   in_order    between two ranks, messages on one channel arrive in the order in which they were sent
//   in_place    a cancelled or lost message keeps its position: its receive completes with the message, kCancelled,
//               kPeerLost or kTimeout, and never with a later message
//   whole       a message arrives whole or not at all; a buffer that is too small for it completes with kTooSmall
//   one_answer  every posted operation completes exactly once: done, cancelled, or with a Status that gives the reason
//   names_peer  when a peer is gone, every operation with it completes with its rank and kPeerLost, or with kTimeout if
//               it only stopped answering
//   farewell    messages that a peer sent before it closed in good order still arrive; after that it is gone
//   apart       operations with other peers continue
//   counted     the bytes of a long message count as received before its last byte arrives
//   quiet       it starts no thread and prints nothing
//   hosts       ranks that share a machine and its links share a host, if known; the same on all ranks
//   link_rate   comes from the drivers of all ranks' interfaces, not from a measurement; the same on all ranks
//   windowed    after window(bytes), a send of more than 4096 bytes completes only once its receive was posted and all
//               of it except at most `bytes` + 64 KB has arrived at the peer's machine
//   cores       cores() returns how many ranks share the cores that this process may use, if known
//   its_clock   time passes as now() says: a simulated transport has its own clock
// Only one thread at a time may call a transport; any thread may call wake(), messages() and now().
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/byte_view.h"
#include "tithe/hosts.h"
#include "tithe/status.h"

namespace tithe {

using Rank = int;
using Channel = std::uint32_t;  // 0 is the control channel (plans, farewells); one more per partition
using OpId = std::uint64_t;     // the caller's number for an operation

struct Completion {
  OpId op = 0;
  std::size_t bytes = 0;  // bytes received
  Status status;          // the result; peer() is the rank concerned. Its text does not repeat the rank
};

// The cores that this process may use, and the number of ranks that share them, including this one.
struct CoresHere {
  int cores = 1;
  int ranks = 1;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view kind() const = 0;  // its name in transports.def
  virtual Rank rank() const = 0;
  virtual int world() const = 0;
  // The ranks that share a host. The same on all ranks.
  virtual Hosts hosts() const { return {}; }
  // Bytes per second of the slowest link between hosts; 0: unknown, or there is only one host. The same on all ranks.
  virtual std::uint64_t link_rate() const { return 0; }
  // The default, for a transport without that information, is one core.
  virtual CoresHere cores() const { return {}; }
  // A key that only the ranks of this job share, new for each connection of the world; frames are tagged with it.
  // Empty if no other process can send, as with ranks that are threads of one process.
  virtual ByteView key() const { return {}; }
  // True if network cards may round the floats of payloads in transit (card/docs/card.md): checksums and tags then
  // cover headers only, and the session requires codec fp32. The same on all ranks.
  virtual bool rounds_payloads() const { return false; }

  // Until the operation completes, the caller must not change `bytes` (send) nor read `into` (recv). Never blocks.
  virtual Status send(Rank peer, Channel channel, ByteView bytes, OpId op) = 0;
  virtual Status recv(Rank peer, Channel channel, Bytes into, OpId op) = 0;

  // Makes progress and writes completions to `out`; returns how many. Waits at most `wait` for the first one.
  virtual std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) = 0;
  virtual void wake() = 0;  // ends a waiting poll early
  // Lines about problems of this transport since the last call. From any thread.
  virtual std::vector<std::string> messages() { return {}; }
  // The clock of all timeouts.
  virtual std::chrono::steady_clock::time_point now() const { return std::chrono::steady_clock::now(); }

  // Before the first send: the most bytes in flight to one peer. 0, the default: the transport decides, and a send may
  // complete as soon as its bytes are copied.
  virtual void window(std::size_t bytes) = 0;

  virtual void cancel(OpId op) = 0;  // completes it with kCancelled, unless it completes first
  // The Status that completes operations with this peer, once it is gone. A peer that closed in good order is gone.
  virtual Status peer_status(Rank peer) const = 0;
  // Bytes of all messages sent so far, to all peers (for the engine: whole frames).
  virtual std::uint64_t bytes_sent() const = 0;
  // Bytes from this peer that have arrived for receives so far, on all channels, of incomplete messages too. Never
  // decreases; during a long message it increases at least once per half a megabyte.
  virtual std::uint64_t bytes_received(Rank peer) const = 0;
};

}  // namespace tithe
