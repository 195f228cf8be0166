// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bucket_cap_mb that DistributedDataParallel would do better with, from a trace in which backward is marked.
//
// Rule: a bucket of B bytes keeps the session busy for o + c B. When bucket i of a step is done follows from when it
// was handed over:
//     done_i = max(done_{i-1}, handed_i) + o + c B_i,
// and what is left of the last done_i after the end of backward is open: the model waits for it. Buckets of another
// size are handed over when as many bytes were ready as they end with, along a straight line between the hand-overs
// that were traced (and from nothing at the beginning of backward). The cap with the least open time is advised, if it
// spares at least a twentieth of the step; of caps that are as good to a hundredth of the step, the largest. Else
// nothing is said.
//
// o and c: a line through the buckets' times, least squares, where the largest has at least four times the bytes of the
// smallest; else o is what a frame takes at least, there and back, and c what is left of the mean bucket's time.
#include <optional>
#include <span>

#include "trace/account.h"

namespace tithe::trace {

struct Advice {
  double bucket_cap_mb = 0;  // 2^20 bytes, as torch counts
  double largest_mb = 0;     // of the buckets that were traced
  double spared_ns = 0;      // per step, by the rule
  double step_ns = 0;        // as traced
  double bucket_ns = 0;      // o
  double byte_ns = 0;        // c
};

// One rank's rounds. least_frame_ns: the least transit time of a frame.
std::optional<Advice> advise(std::span<const Round> rounds, double least_frame_ns);

}  // namespace tithe::trace
