// SPDX-License-Identifier: Apache-2.0
#pragma once
// The trace of one rank, as the file that it leaves behind: a Chrome trace by itself (Perfetto opens it), and what
// `tithe trace` puts together with those of the other ranks (docs/guide/trace.md).
//
//   same      what was written is read back: every event with all that it says
//   whole     a file that was cut anywhere is refused, and so is one that was not written by a session
//   honest    any bytes are answered with a trace or a Status that names the line; what is held grows with the file
#include <functional>
#include <istream>
#include <set>
#include <string>
#include <vector>

#include "tithe/status.h"
#include "tithe/trace.h"

namespace tithe::trace {

inline constexpr int kMostRanks = 65'536;

// The facts that a trace tells of its rank.
struct Origin {
  int rank = 0;
  int world = 1;
  std::uint64_t run = 0;
  std::string job;         // the same on all ranks of a job, and on no other's; empty where ranks are threads
  std::string host;        // its name, for people
  std::uint64_t lost = 0;  // events that were not kept
};

struct RankTrace {
  Origin origin;
  std::vector<TraceEvent> events;            // by their end
  std::set<std::string, std::less<>> names;  // the texts of events that were read
  RankTrace() = default;
  RankTrace(RankTrace&&) = default;  // events name what lies in `names`: no copies
  RankTrace& operator=(RankTrace&&) = default;
};

// Takes a piece of text, some ten kilobytes each time.
using Sink = std::function<void(std::string_view)>;

void write(const Origin& origin, const std::vector<TraceEvent>& events, const Sink& sink);

// kInvalid: no trace of a session; kCorrupt: one that is not whole.
Result<RankTrace> read(std::istream& in);

bool is_message(const TraceEvent& event);  // send, recv
bool is_step(const TraceEvent& event);     // of computing
bool is_call(const TraceEvent& event);     // of a caller's, and what he marked

}  // namespace tithe::trace
