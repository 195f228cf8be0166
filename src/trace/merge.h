// SPDX-License-Identifier: Apache-2.0
#pragma once
// Merges the traces of all ranks, by rank 0's clock, for Perfetto. Each rank is a process with its lanes as threads.
// Buckets, messages and marks of callers are asynchronous slices; an arrow leads from each send to its receive; a
// counter shows the bytes that a rank has in flight.
//
// Every event of every rank is included, and every receive of a matched frame has an arrow from its send. A receive is
// drawn from the time at which its sender submitted the frame, by the aligned clocks.
#include <span>

#include "trace/clocks.h"

namespace tithe::trace {

// `traces` and `clocks` by rank.
void merge(std::span<const RankTrace> traces, std::span<const Message> messages,
           std::span<const Clock> clocks, const Sink& sink);

}  // namespace tithe::trace
