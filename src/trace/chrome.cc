// SPDX-License-Identifier: Apache-2.0
// Writes Chrome trace events as text, one per line. Times are in microseconds with three decimals, which keeps
// nanoseconds exact.
#include "trace/chrome.h"

#include <fmt/format.h>

#include <iterator>

#include "base/text.h"
#include "trace/rank_trace.h"

namespace tithe::trace {
namespace {

constexpr std::size_t kMaxText = 1000;  // longest text of a key or a mark

}  // namespace

void put_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : printable(text, kMaxText)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

void put_us(std::string& out, std::int64_t ns) {
  fmt::format_to(std::back_inserter(out), "{}.{:03}", ns / 1000, ns % 1000);
}

std::string args_of(const TraceEvent& e, std::int64_t zero) {
  std::string out;
  fmt::format_to(std::back_inserter(out), ",\"round\":{},\"bucket\":{},\"part\":{},\"chunk\":{},\"phase\":{}",
                 e.round, e.bucket, e.part, e.chunk, e.phase);
  fmt::format_to(std::back_inserter(out), ",\"peer\":{},\"lane\":{},\"bytes\":{},\"op\":", e.peer, e.lane,
                 e.bytes);
  put_text(out, e.op);
  out += ",\"key\":";
  put_text(out, e.key);
  out += ",\"codec\":";
  put_text(out, e.codec);
  out += ",\"ready_us\":";
  put_us(out, e.ready_ns - zero);
  out += ",\"end_us\":";
  put_us(out, e.end_ns - zero);
  return out;
}

std::string title_of(const TraceEvent& e) {
  std::string out(e.op);
  if (!e.key.empty()) fmt::format_to(std::back_inserter(out), " {}", e.key);
  if (e.op == "send") fmt::format_to(std::back_inserter(out), " to {}", e.peer);
  if (e.op == "recv") fmt::format_to(std::back_inserter(out), " from {}", e.peer);
  return out;
}

void Chrome::head(std::string_view name, char phase, int rank) {
  out_ += "{\"name\":";
  put_text(out_, name);
  fmt::format_to(std::back_inserter(out_), ",\"ph\":\"{}\",\"pid\":{}", phase, rank);
}

void Chrome::at(std::int64_t ns) {
  out_ += ",\"ts\":";
  put_us(out_, ns);
}

void Chrome::slice(int rank, int thread, std::string_view name, std::int64_t begin, std::int64_t end,
                   std::string_view category, std::string_view args) {
  head(name, 'X', rank);
  at(begin);
  out_ += ",\"dur\":";
  put_us(out_, end - begin);
  fmt::format_to(std::back_inserter(out_), ",\"tid\":{},\"cat\":\"{}\"", thread, category);
  if (!args.empty()) fmt::format_to(std::back_inserter(out_), ",\"args\":{{{}}}", args.substr(1));
  out_ += "},\n";
}

void Chrome::event(int rank, std::uint64_t& last_id, const TraceEvent& e, std::int64_t from, std::int64_t to,
                   std::string_view args) {
  const std::string title = title_of(e);
  if (is_step(e)) return slice(rank, kFirstLane + e.lane - 1, title, from, to, "step", args);
  if (is_call(e)) return slice(rank, kCaller, title, from, to, "call", args);
  const std::string_view category = is_message(e) ? "message" : e.op == "bucket" ? "bucket" : "mark";
  head(title, 'b', rank);
  at(from);
  fmt::format_to(std::back_inserter(out_), ",\"id\":\"{}\",\"cat\":\"{}\",\"args\":{{{}}}}},\n", ++last_id,
                 category, args.substr(args.empty() ? 0 : 1));
  head(title, 'e', rank);
  at(to);
  fmt::format_to(std::back_inserter(out_), ",\"id\":\"{}\",\"cat\":\"{}\"}},\n", last_id, category);
}

void Chrome::flow(int rank, int thread, std::uint64_t id, bool out, std::int64_t when) {
  head("frame", out ? 's' : 'f', rank);
  at(when);
  fmt::format_to(std::back_inserter(out_), ",\"tid\":{},\"id\":{},\"cat\":\"frame\"{}}},\n", thread, id,
                 out ? "" : ",\"bp\":\"e\"");
}

void Chrome::counter(int rank, std::string_view name, std::int64_t when, std::int64_t value) {
  head(name, 'C', rank);
  at(when);
  fmt::format_to(std::back_inserter(out_), ",\"args\":{{\"bytes\":{}}}}},\n", value);
}

void Chrome::process(int rank, std::string_view host, int lanes) {
  const auto named = [&](std::string_view what, int thread, std::string_view name) {
    head(what, 'M', rank);
    fmt::format_to(std::back_inserter(out_), ",\"tid\":{},\"args\":{{\"name\":", thread);
    put_text(out_, name);
    out_ += "}},\n";
  };
  named("process_name", 0, fmt::format("rank {}, {}", rank, host));
  named("thread_name", kCaller, "caller");
  named("thread_name", kNetwork, "network");
  for (int lane = 0; lane < lanes; ++lane)
    named("thread_name", kFirstLane + lane, fmt::format("lane {}", lane + 1));
}

void Chrome::last(int rank) {
  head("process_sort_index", 'M', rank);
  fmt::format_to(std::back_inserter(out_), ",\"args\":{{\"sort_index\":{}}}}}\n]}}\n", rank);
}

}  // namespace tithe::trace
