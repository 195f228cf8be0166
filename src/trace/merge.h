// SPDX-License-Identifier: Apache-2.0
#pragma once
// The traces of all ranks as one, by rank 0's clock, for Perfetto: a process per rank with its lanes as threads;
// buckets, messages and what callers marked as slices of their own beside them; an arrow from each send to its receive;
// and how many bytes a rank has under way.
//
//   whole     every event of every rank is there, and every receive of a matched frame has an arrow from its send
//   transfer  a receive is drawn from the moment in which its sender handed the frame over, by the aligned clocks
#include <span>

#include "trace/clocks.h"

namespace tithe::trace {

// traces and clocks by rank.
void merge(std::span<const RankTrace> traces, std::span<const Message> messages,
           std::span<const Clock> clocks, const Sink& sink);

}  // namespace tithe::trace
