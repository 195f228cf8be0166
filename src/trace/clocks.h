// SPDX-License-Identifier: Apache-2.0
#pragma once
// Aligns the clocks of ranks on different hosts, using frames: no frame arrives before it was sent. For a frame from
// rank i to rank j, arrival - send, each by its own clock, is an upper bound of how far j's clock is ahead of i's. The
// tightest bounds along all paths from rank 0 and back (shortest paths in a system of difference constraints) give an
// interval for each rank, and its middle is taken. For two ranks that send to each other, this is half the difference
// of the shortest transit times in both directions, with an error of at most half their sum. If frames travel in one
// direction only, as in a ring, the path back is the rest of the ring.
//
//   - causal: by the aligned clocks, no frame arrives before it was sent, if clocks run at the same speed.
//   - bounded: a clock's error is at most error_ns(), if clocks run at the same speed.
//   - drift: if clocks run at different speeds and the bounds contradict each other, the trace is cut into pieces of
//     rounds until they do not. Between the middles of pieces, a clock's offset is interpolated linearly.
#include <cstddef>
#include <span>
#include <vector>

#include "trace/rank_trace.h"

namespace tithe::trace {

// A frame, as events of traces[from] and traces[to].
struct Message {
  int from = 0, to = 0;
  std::size_t send = 0, recv = 0;
};

struct Matched {
  std::vector<Message> messages;
  std::size_t alone = 0;  // unmatched sends and receives of rounds that did not end on all ranks
};

// kInvalid: a rank is missing or duplicated, or the files belong to different jobs.
Status check_ranks(std::span<const RankTrace> traces);

// `traces` by rank. kInvalid if a round that both ranks committed has a frame in only one of the traces: the files
// belong to different jobs.
Result<Matched> match(std::span<const RankTrace> traces);

// The offset of a rank's clock from rank 0's.
class Clock {
 public:
  struct Point {
    std::int64_t at_ns = 0;  // by its own clock
    std::int64_t ahead_ns = 0;
  };
  Clock() = default;
  Clock(std::vector<Point> points, std::int64_t error_ns);
  std::int64_t ahead(std::int64_t own_ns) const;
  std::int64_t by_rank0(std::int64_t own_ns) const { return own_ns - ahead(own_ns); }
  std::int64_t error_ns() const { return error_ns_; }
  std::size_t pieces() const { return points_.size(); }

 private:
  std::vector<Point> points_{{}};  // by time
  std::int64_t error_ns_ = 0;
};

// kInvalid if there is no path of frames from rank 0 to some rank and back.
Result<std::vector<Clock>> align(std::span<const RankTrace> traces, std::span<const Message> messages);

}  // namespace tithe::trace
