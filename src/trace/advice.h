// SPDX-License-Identifier: Apache-2.0
#pragma once
// Advises a bucket_cap_mb for DistributedDataParallel, from a trace in which the backward pass is marked.
//
// Model: a bucket of B bytes occupies the session for o + c B. If bucket i is submitted at handed_i, it is done at
//     done_i = max(done_{i-1}, handed_i) + o + c B_i.
// The part of the last done_i after the end of backward is the open time, for which the model waits. Buckets of another
// size would be submitted when as many bytes are ready as they end with; this time is interpolated linearly between the
// traced submissions, starting with 0 bytes at the start of backward. The advice is the cap with the least open time,
// if it saves at least a twentieth of the step. Among caps that are equal within a hundredth of the step, the largest
// one wins. Otherwise there is no advice.
//
// o and c come from a least-squares line through the buckets' times if the largest bucket has at least four times the
// bytes of the smallest one. Otherwise o is the shortest round trip of a frame, and c follows from the mean bucket.
#include <optional>
#include <span>

#include "trace/account.h"

namespace tithe::trace {

struct Advice {
  double bucket_cap_mb = 0;  // in units of 2^20 bytes, as in torch
  double largest_mb = 0;     // the largest traced bucket
  double spared_ns = 0;      // per step, by the model
  double step_ns = 0;        // as traced
  double bucket_ns = 0;      // o
  double byte_ns = 0;        // c
};

// The rounds of one rank. min_frame_ns: the shortest transit time of a frame.
std::optional<Advice> advise(std::span<const Round> rounds, double min_frame_ns);

}  // namespace tithe::trace
