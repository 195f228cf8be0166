// SPDX-License-Identifier: Apache-2.0
#pragma once
// The clocks of ranks on other hosts differ. Frames are what they have in common: none arrives before it was sent.
// So a frame from i to j bounds by how much j's clock is ahead of i's: arrival - send, each by its own clock. The
// tightest bounds along any way from rank 0 and back to it (shortest paths: difference constraints) leave an interval
// for each rank; its middle is taken. Between two ranks that send to each other this is half the difference of the
// least transit times there and back, wrong by at most half their sum; but where frames go one way round, as in a ring,
// there is no way back between two neighbours, and the whole round is it.
//
//   causal    by the aligned clocks no frame arrives before it was sent, where clocks run alike
//   bounded   a clock is wrong by no more than it says, where clocks run alike
//   drift     where they do not, and the bounds contradict each other, the trace is cut into pieces of rounds until
//             they do not; between the middles of pieces a clock follows a straight line
#include <cstddef>
#include <span>
#include <vector>

#include "trace/rank_trace.h"

namespace tithe::trace {

// A frame: events of traces[from] and traces[to].
struct Message {
  int from = 0, to = 0;
  std::size_t send = 0, recv = 0;
};

struct Matched {
  std::vector<Message> messages;
  std::size_t alone = 0;  // sends and receives of rounds that did not end everywhere
};

// kInvalid: a rank is missing or there twice, or the files are not of one job.
Status check_ranks(std::span<const RankTrace> traces);

// By rank: traces[r] is rank r's. kInvalid where a round that both ranks committed has a frame that one of them does
// not know: the files are not of one job.
Result<Matched> match(std::span<const RankTrace> traces);

// How much a rank's clock is ahead of rank 0's.
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

// kInvalid where frames do not go from rank 0 to some rank, on whatever way, and back.
Result<std::vector<Clock>> align(std::span<const RankTrace> traces, std::span<const Message> messages);

}  // namespace tithe::trace
