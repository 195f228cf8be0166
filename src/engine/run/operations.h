// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operation ids that the runner gives to the transport, and this rank's identity in control messages.
#include "engine/run/job.h"

namespace tithe::engine {

inline constexpr Channel kControlChannel = 0;

// Control operations have the top bit set. kPendingSend is a message from a peer's outbox (Peer::out).
inline constexpr OpId kControlBit = OpId{1} << 63;
enum ControlOp : OpId { kControlRecv = 0, kControlSend = 1, kFarewellOp = 2, kPendingSend = 3 };
inline OpId control_op(ControlOp op, Rank peer) {
  return kControlBit | static_cast<OpId>(op) << 32 | static_cast<OpId>(peer);
}
inline OpId step_op(const Job& job, int step) { return OpId{job.number} << 32 | static_cast<OpId>(step); }

inline ControlIdentity identity_of(const Member& member) {
  return {member.me, member.world, member.tags.get()};
}

}  // namespace tithe::engine
