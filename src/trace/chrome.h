// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes events in the format of Chrome's tracing and Perfetto, one JSON object per line.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
//
// Slices of one thread are nested or disjoint. Each line is valid JSON, whatever a key contains. No time or duration is
// negative, because times count from the first one.
#include <cstdint>
#include <string>
#include <string_view>

#include "tithe/trace.h"

namespace tithe::trace {

// The threads of a rank in the display. Compute lanes follow.
enum Thread : int { kCaller = 1, kNetwork = 2, kFirstLane = 3 };

class Chrome {
 public:
  explicit Chrome(std::string& out) : out_(out) {}

  // `args`: the members of a JSON object, each with a leading comma; may be empty.
  void slice(int rank, int thread, std::string_view name, std::int64_t begin, std::int64_t end,
             std::string_view category, std::string_view args);
  // A step or a call as a slice of its thread; another event as an asynchronous slice with the next id, which may
  // overlap others.
  void event(int rank, std::uint64_t& last_id, const TraceEvent& e, std::int64_t from, std::int64_t to,
             std::string_view args);
  // An arrow from the slice that begins there to another one (`out`), or its end.
  void flow(int rank, int thread, std::uint64_t id, bool out, std::int64_t at);
  void counter(int rank, std::string_view name, std::int64_t at, std::int64_t value);
  // "rank 0, host a" and its threads. last() writes the final line, which has no comma.
  void process(int rank, std::string_view host, int lanes);
  void last(int rank);

 private:
  void head(std::string_view name, char phase, int rank);
  void at(std::int64_t ns);
  std::string& out_;
};

// All fields of an event that are not elsewhere in its line, so that a file can be read back. `zero` is the time from
// which times count.
std::string args_of(const TraceEvent& event, std::int64_t zero);
std::string title_of(const TraceEvent& event);  // "encode layer.weight"

void put_text(std::string& out, std::string_view text);  // as a quoted JSON string
void put_us(std::string& out, std::int64_t ns);          // as microseconds, exactly

}  // namespace tithe::trace
