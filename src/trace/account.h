// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the time of a rank's step goes, from its own trace: means over its complete rounds.
//
//   - span: from the submission of a round's first bucket to the end of its commit.
//   - hidden: the part of the span before the end of the backward pass, or before the last submission if the caller
//     marked no backward pass. The rest is open: hidden + open == span.
//   - warm: with more than four rounds, the first two are dropped, since they include connections, layouts and the
//     buckets that DDP rebuilds.
#include <optional>
#include <span>
#include <vector>

#include "trace/clocks.h"

namespace tithe::trace {

// All values in ns, per round.
struct Account {
  std::size_t rounds = 0;
  double step = 0;     // from commit to commit
  double encode = 0;   // lane time
  double merge = 0;    // lane time of merge and store
  double other = 0;    // lane time of load, check
  double send = 0;     // time with a frame of this rank in flight
  double queue = 0;    // sum of the times that compute steps wait for a lane
  double waiting = 0;  // time in the span without a running step and without a frame of this rank in flight
  double hidden = 0, open = 0;
};

// A bucket and a round of one rank, as input for the advice.
struct Bucket {
  std::int64_t handed = 0, done = 0;
  std::uint64_t bytes = 0;
};
struct Round {
  std::uint32_t number = 0;
  std::int64_t begin = 0;                                         // the end of the previous commit
  std::int64_t end = 0;                                           // the end of its own commit
  std::optional<std::pair<std::int64_t, std::int64_t>> backward;  // if the caller marked it
  std::vector<Bucket> buckets;                                    // in the order of submission
};

// The complete, warm rounds of a trace. If the previous commit is missing, a round begins with its first submission.
std::vector<Round> rounds_of(const RankTrace& trace);
Account account(const RankTrace& trace, std::span<const Round> rounds);

}  // namespace tithe::trace
