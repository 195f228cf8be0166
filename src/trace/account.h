// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a rank's step went, from its trace alone: means over its whole rounds.
//
//   span      from the hand-over of a round's first bucket to the end of its commit
//   hidden    that part of the span which lies before the end of the backward pass: before the last hand-over, where no
//             caller marked one. The rest is not hidden: hidden + open == span
//   warm      the first two rounds are left out where there are more than four: connections, layouts, buckets that DDP
//             forms anew
#include <optional>
#include <span>
#include <vector>

#include "trace/clocks.h"

namespace tithe::trace {

struct Account {  // all in ns, per round
  std::size_t rounds = 0;
  double step = 0;     // from commit to commit
  double encode = 0;   // lane time
  double merge = 0;    // lane time of merge and store
  double other = 0;    // lane time of load, check
  double send = 0;     // some frame of this rank is under way
  double queue = 0;    // steps of computing wait for a lane, added up
  double waiting = 0;  // within the span: no step runs and no frame of this rank is under way
  double hidden = 0, open = 0;
};

// A round of one rank, as advice wants it.
struct Bucket {
  std::int64_t handed = 0, done = 0;
  std::uint64_t bytes = 0;
};
struct Round {
  std::uint32_t number = 0;
  std::int64_t begin = 0;                                         // the commit before
  std::int64_t end = 0;                                           // its own
  std::optional<std::pair<std::int64_t, std::int64_t>> backward;  // where a caller marked it
  std::vector<Bucket> buckets;                                    // by hand-over
};

// The whole rounds of a trace, warm ones. One whose commit before is not there begins with its first hand-over.
std::vector<Round> rounds_of(const RankTrace& trace);
Account account(const RankTrace& trace, std::span<const Round> rounds);

}  // namespace tithe::trace
