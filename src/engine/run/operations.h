// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the runner names what it hands to the transport.
#include "engine/run/job.h"

namespace tithe::engine {

inline constexpr Channel kControlChannel = 0;

// Operations: control ones have the top bit set.
inline constexpr OpId kControlBit = OpId{1} << 63;
enum ControlOp : OpId {
  kControlRecv = 0,
  kControlSend = 1,
  kFarewellOp = 2,
  kNote = 3
};  // kNote: from a peer's outbox
inline OpId control_op(ControlOp op, Rank peer) {
  return kControlBit | static_cast<OpId>(op) << 32 | static_cast<OpId>(peer);
}
inline OpId step_op(const Job& job, int step) { return OpId{job.number} << 32 | static_cast<OpId>(step); }

}  // namespace tithe::engine
