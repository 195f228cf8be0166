// SPDX-License-Identifier: Apache-2.0
#pragma once
// Events in the form that Chrome's tracing and Perfetto read: one JSON object per line.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
//
//   nested    slices of one thread lie inside each other or apart
//   escaped   whatever a key holds, the line is JSON
//   positive  no time and no duration is negative: times count from the first one
#include <cstdint>
#include <string>
#include <string_view>

#include "tithe/trace.h"

namespace tithe::trace {

// Threads of a rank, as it is shown. Compute lanes follow.
enum Thread : int { kCaller = 1, kNetwork = 2, kFirstLane = 3 };

class Chrome {
 public:
  explicit Chrome(std::string& out) : out_(out) {}

  // args: the members of an object, with a comma before each; may be empty.
  void slice(int rank, int thread, std::string_view name, std::int64_t begin, std::int64_t end,
             std::string_view category, std::string_view args);
  // Any number of these at once; `id` is that of both ends.
  void begin(int rank, std::uint64_t id, std::string_view name, std::int64_t at, std::string_view category,
             std::string_view args);
  void end(int rank, std::uint64_t id, std::string_view name, std::int64_t at, std::string_view category);
  // From the slice that begins there on that thread to another one.
  void flow(int rank, int thread, std::uint64_t id, bool out, std::int64_t at);
  void counter(int rank, std::string_view name, std::int64_t at, std::int64_t value);
  // "rank 0, host a" and its threads. The last line of all has no comma behind it.
  void process(int rank, std::string_view host, int lanes);
  void last(int rank);

 private:
  void head(std::string_view name, char phase, int rank);
  void at(std::int64_t ns);
  std::string& out_;
};

// Everything of an event that is not elsewhere in its line: what a file is read back from. `zero` is where times
// count from.
std::string args_of(const TraceEvent& event, std::int64_t zero);
std::string title_of(const TraceEvent& event);  // "encode layer.weight"

void put_text(std::string& out, std::string_view text);  // as JSON, with its quotes
void put_us(std::string& out, std::int64_t ns);          // as microseconds, exactly

}  // namespace tithe::trace
