// SPDX-License-Identifier: Apache-2.0
#pragma once
// The trace of one rank as a file: a valid Chrome trace, which Perfetto opens, and the input of `tithe trace`, which
// merges the files of all ranks (docs/guide/trace.md).
//
// Reading a written file gives the same events. A truncated file, and a file that no session wrote, are refused. Any
// input gives a trace or a Status with the line; memory grows in proportion to the file.
#include <functional>
#include <istream>
#include <set>
#include <string>
#include <vector>

#include "tithe/status.h"
#include "tithe/trace.h"

namespace tithe::trace {

inline constexpr int kMaxRanks = 65'536;

// Facts about the rank of a trace.
struct Origin {
  int rank = 0;
  int world = 1;
  std::uint64_t run = 0;
  std::string job;         // unique to the job and equal on all its ranks; empty if ranks are threads
  std::string host;        // name, for display
  std::uint64_t lost = 0;  // events that were dropped
};

struct RankTrace {
  Origin origin;
  std::vector<TraceEvent> events;            // in the order of their ends
  std::set<std::string, std::less<>> names;  // storage for the texts of events that were read
  RankTrace() = default;
  RankTrace(RankTrace&&) = default;  // not copyable: events refer to `names`
  RankTrace& operator=(RankTrace&&) = default;
};

// Receives the text in pieces of some ten kilobytes.
using Sink = std::function<void(std::string_view)>;

void write(const Origin& origin, const std::vector<TraceEvent>& events, const Sink& sink);

// kInvalid: not a trace of a session; kCorrupt: truncated or damaged.
Result<RankTrace> read(std::istream& in);

bool is_message(const TraceEvent& event);  // send, recv
bool is_step(const TraceEvent& event);     // of computation
bool is_call(const TraceEvent& event);     // a call of the caller, or a mark

}  // namespace tithe::trace
