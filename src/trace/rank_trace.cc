// SPDX-License-Identifier: Apache-2.0
// The file of one rank: a first line with the origin and the number of events, then one event per line. The reader
// checks the number, so a truncated file is detected.
#include "trace/rank_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "trace/chrome.h"

namespace tithe::trace {
namespace {

using Json = nlohmann::json;

// Readers ignore unknown members. Raise it only if the meaning of a member changes.
constexpr int kFormat = 1;
// Minimum number of bytes per call of the sink, except for the last one.
constexpr std::size_t kPiece = 1U << 16;
constexpr std::size_t kMaxLine = 1U << 14;  // bytes
constexpr double kMaxUs = 1e15;             // thirty years; up to ten weeks a double is exact to a nanosecond
constexpr std::string_view kNotOne =
    "this is not a trace of a tithe session: give the files that TITHE_TRACE=FILE writes, one of each rank";
constexpr std::string_view kCut =
    "is incomplete: the job did not close its session, or the copy was truncated. Copy it again, or trace "
    "again";

Status no_trace() { return {Code::kInvalid, std::string(kNotOne)}; }
Status wrong(std::size_t line, std::string_view why) {
  return {Code::kCorrupt, fmt::format("line {}: {}", line, why)};
}

// Reads an integer member in [low, high]; false if there is none.
template <typename T>
bool take(const Json& from, const char* name, T low, T high, T& out) {
  const auto found = from.find(name);
  if (found == from.end() || !found->is_number_integer()) return false;
  if (found->is_number_unsigned()) {
    const auto v = found->get<std::uint64_t>();
    if (v > static_cast<std::uint64_t>(high)) return false;
    out = static_cast<T>(v);
    return out >= low;
  }
  const auto v = found->get<std::int64_t>();  // negative
  if constexpr (std::is_unsigned_v<T>) return false;
  if (v < static_cast<std::int64_t>(low)) return false;
  out = static_cast<T>(v);
  return true;
}

bool take(const Json& from, const char* name, std::string& out) {
  const auto found = from.find(name);
  if (found == from.end() || !found->is_string()) return false;
  out = found->get<std::string>();
  return true;
}

bool parse_us(const Json& from, const char* name, std::int64_t origin, std::int64_t& out) {
  const auto found = from.find(name);
  if (found == from.end() || !found->is_number()) return false;
  const auto us = found->get<double>();
  if (!(us >= 0 && us <= kMaxUs)) return false;
  out = origin + std::llround(us * 1000);
  return true;
}

std::string_view keep(RankTrace& trace, const Json& from, const char* name) {
  std::string text;
  take(from, name, text);
  return *trace.names.insert(std::move(text)).first;
}

bool parse_event(RankTrace& trace, const Json& line, std::int64_t origin) {
  constexpr std::uint32_t kMaxU32 = std::numeric_limits<std::uint32_t>::max();
  const auto args = line.find("args");
  if (args == line.end() || !args->is_object()) return false;
  TraceEvent e;
  const bool whole =
      take(*args, "round", 0U, kMaxU32, e.round) && take(*args, "bucket", 0U, kMaxU32, e.bucket) &&
      take(*args, "part", 0U, kMaxU32, e.part) && take(*args, "chunk", 0, kMaxRanks, e.chunk) &&
      take(*args, "phase", 0, 255, e.phase) && take(*args, "peer", -1, trace.origin.world - 1, e.peer) &&
      take(*args, "lane", -1, kMaxRanks, e.lane) &&
      take(*args, "bytes", std::uint64_t{0}, std::uint64_t{1} << 60, e.bytes) &&
      parse_us(line, "ts", origin, e.begin_ns) && parse_us(*args, "ready_us", origin, e.ready_ns) &&
      parse_us(*args, "end_us", origin, e.end_ns) && e.end_ns >= e.begin_ns;
  if (!whole) return false;
  e.op = keep(trace, *args, "op");
  e.key = keep(trace, *args, "key");
  e.codec = keep(trace, *args, "codec");
  const bool message = e.op == "send" || e.op == "recv";
  if (e.op.empty() || message != (e.lane == 0) || (message && (e.peer < 0 || e.peer == trace.origin.rank)))
    return false;
  trace.events.push_back(e);
  return true;
}

Status parse_head(const Json& line, Origin& o, std::int64_t& origin, std::uint64_t& events) {
  const auto head = line.find("tithe");
  if (!line.is_object() || head == line.end() || !head->is_object()) return no_trace();
  int format = 0;
  if (!take(*head, "format", 1, std::numeric_limits<int>::max(), format)) return no_trace();
  if (format != kFormat)
    return {Code::kUnsupported,
            fmt::format("the trace has format {}, this build reads {}: use the tithe that wrote it", format,
                        kFormat)};
  constexpr auto kMaxU64 = std::numeric_limits<std::uint64_t>::max();
  constexpr auto kMaxNs = std::numeric_limits<std::int64_t>::max() / 2;
  if (!take(*head, "world", 1, kMaxRanks, o.world) || !take(*head, "rank", 0, o.world - 1, o.rank) ||
      !take(*head, "run", std::uint64_t{0}, kMaxU64, o.run) || !take(*head, "job", o.job) ||
      !take(*head, "host", o.host) || !take(*head, "lost", std::uint64_t{0}, kMaxU64, o.lost) ||
      !take(*head, "events", std::uint64_t{0}, kMaxU64, events) ||
      !take(*head, "origin_ns", -kMaxNs, kMaxNs, origin))
    return wrong(1, "the header is missing or wrong");
  return {};
}

// Reads a line. False at the end of the file, or if the line is longer than any that a session writes.
bool next(std::istream& in, std::string& line) {
  line.clear();
  for (char c = 0; in.get(c);) {
    if (c == '\n') return true;
    if (line.size() == kMaxLine) return false;
    line += c;
  }
  return false;
}

}  // namespace

bool is_message(const TraceEvent& e) { return e.lane == 0; }
bool is_step(const TraceEvent& e) { return e.lane > 0; }
bool is_call(const TraceEvent& e) { return e.lane < 0 && (e.op == "wait" || e.op == "commit"); }

// Times are relative to the earliest event, whose time is origin_ns in the first line.
void write(const Origin& origin, const std::vector<TraceEvent>& events, const Sink& sink) {
  std::int64_t zero = events.empty() ? 0 : events.front().begin_ns;
  int lanes = 0;
  for (const TraceEvent& e : events) {
    zero = std::min({zero, e.begin_ns, e.ready_ns});
    lanes = std::max(lanes, e.lane);
  }
  std::string out = fmt::format(
      "{{\"displayTimeUnit\":\"ns\",\"tithe\":{{\"format\":{},\"rank\":{},\"world\":{},\"run\":{},\"lost\":{}"
      ","
      "\"events\":{},\"origin_ns\":{},\"job\":",
      kFormat, origin.rank, origin.world, origin.run, origin.lost, events.size(), zero);
  put_text(out, origin.job);
  out += ",\"host\":";
  put_text(out, origin.host);
  out += "},\"traceEvents\":[\n";
  Chrome chrome(out);
  chrome.process(origin.rank, origin.host, lanes);
  std::uint64_t id = 0;
  for (const TraceEvent& e : events) {
    chrome.event(origin.rank, id, e, e.begin_ns - zero, e.end_ns - zero, args_of(e, zero));
    if (out.size() < kPiece) continue;
    sink(out);
    out.clear();
  }
  chrome.last(origin.rank);
  sink(out);
}

Result<RankTrace> read(std::istream& in) {
  RankTrace trace;
  std::string text;
  if (!next(in, text) || !text.starts_with("{\"displayTimeUnit\"") || !text.ends_with("[")) return no_trace();
  std::int64_t origin = 0;
  std::uint64_t events = 0;
  const Json head = Json::parse(text + "]}", nullptr, false);
  if (head.is_discarded()) return no_trace();
  TITHE_TRY(parse_head(head, trace.origin, origin, events));
  for (std::size_t number = 2;; ++number) {
    if (!next(in, text)) return Status(Code::kCorrupt, std::string(kCut));
    if (text == "]}") break;
    if (text.ends_with(',')) text.pop_back();
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) return wrong(number, "no event");
    std::string phase;
    if (!take(line, "ph", phase)) return wrong(number, "no event");
    if ((phase == "X" || phase == "b") && !parse_event(trace, line, origin))
      return wrong(number, "an invalid event");
  }
  if (trace.events.size() != events) return Status(Code::kCorrupt, std::string(kCut));
  return trace;
}

}  // namespace tithe::trace
