// SPDX-License-Identifier: Apache-2.0
// tithe trace: the traces of all ranks as one, by one clock; where each rank's steps went; and what buckets would suit.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "file_io.h"
#include "output.h"
#include "trace/advice.h"
#include "trace/late.h"
#include "trace/merge.h"
#include "verb.h"

namespace tithe::cli {
namespace {

using trace::Clock;
using trace::Message;
using trace::RankTrace;

struct TraceArgs {
  std::vector<std::string> files;
  std::string out;
  double late = 5;  // percent of a step
};

double ms(double ns) { return ns / 1e6; }

Result<std::vector<RankTrace>> read_all(const std::vector<std::string>& files) {
  std::vector<RankTrace> traces;
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::error_code unknown;
    if (!in || fs::is_directory(file, unknown))
      return Status(Code::kIo,
                    fmt::format("{}: cannot be read: give the files that TITHE_TRACE=FILE wrote", file));
    Result<RankTrace> read = trace::read(in);
    if (!read.ok()) return Status(read.status().code(), fmt::format("{}: {}", file, read.status().what()));
    traces.push_back(std::move(*read));
  }
  TITHE_TRY(trace::check_ranks(traces));
  std::sort(traces.begin(), traces.end(),
            [](const RankTrace& a, const RankTrace& b) { return a.origin.rank < b.origin.rank; });
  return traces;
}

void print_clocks(const std::vector<RankTrace>& traces, const std::vector<Clock>& clocks, Report& report) {
  std::size_t width = 4;
  for (const RankTrace& t : traces) width = std::max(width, t.origin.host.size());
  report.text += fmt::format("rank  {:<{}}     events  clock ahead, us  error, us\n", "host", width);
  for (std::size_t r = 0; r < traces.size(); ++r) {
    const trace::Origin& o = traces[r].origin;
    const std::int64_t last = traces[r].events.empty() ? 0 : traces[r].events.back().end_ns;
    const double ahead = static_cast<double>(clocks[r].ahead(last)) / 1e3;
    const double error = static_cast<double>(clocks[r].error_ns()) / 1e3;
    report.text += fmt::format("{:>4}  {:<{}} {:>10}  {:>15.3f}  {:>9.3f}\n", r, o.host, width,
                               traces[r].events.size(), ahead, error);
    report.json["ranks"].push_back({{"rank", r},
                                    {"host", o.host},
                                    {"events", traces[r].events.size()},
                                    {"lost", o.lost},
                                    {"clock_ahead_us", ahead},
                                    {"clock_error_us", error},
                                    {"clock_pieces", clocks[r].pieces()}});
  }
  for (std::size_t r = 0; r < traces.size(); ++r)
    if (traces[r].origin.lost > 0)
      report.text += fmt::format("rank {} had {} events more than are kept: the end of the job is missing\n",
                                 r, traces[r].origin.lost);
}

void print_accounts(const std::vector<RankTrace>& traces, std::span<const std::vector<trace::Round>> rounds,
                    Report& report) {
  report.text +=
      "\nms per step:\nrank  steps     step   encode    merge    other     send    queue  waiting   hidden "
      "     open\n";
  for (std::size_t r = 0; r < traces.size(); ++r) {
    const trace::Account a = trace::account(traces[r], rounds[r]);
    report.text += fmt::format(
        "{:>4}  {:>5} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>9.3f}\n", r,
        a.rounds, ms(a.step), ms(a.encode), ms(a.merge), ms(a.other), ms(a.send), ms(a.queue), ms(a.waiting),
        ms(a.hidden), ms(a.open));
    Json& json = report.json["ranks"][r];
    json["steps"] = a.rounds;
    json["step_ms"] = ms(a.step);
    json["encode_ms"] = ms(a.encode);
    json["merge_ms"] = ms(a.merge);
    json["other_ms"] = ms(a.other);
    json["send_ms"] = ms(a.send);
    json["queue_ms"] = ms(a.queue);
    json["waiting_ms"] = ms(a.waiting);
    json["hidden_ms"] = ms(a.hidden);
    json["open_ms"] = ms(a.open);
  }
}

double min_transit(const std::vector<RankTrace>& traces, const std::vector<Message>& messages,
                   const std::vector<Clock>& clocks) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Message& m : messages) {
    const auto from = static_cast<std::size_t>(m.from), to = static_cast<std::size_t>(m.to);
    const std::int64_t sent = clocks[from].by_rank0(traces[from].events[m.send].begin_ns);
    least = std::min(least, clocks[to].by_rank0(traces[to].events[m.recv].end_ns) - sent);
  }
  return messages.empty() ? 0 : static_cast<double>(std::max<std::int64_t>(0, least));
}

// Prints the advice for the rank with the largest gain. Nothing is printed if no rank can gain.
void print_advice(std::span<const std::vector<trace::Round>> rounds, double min_frame_ns, Report& report) {
  std::optional<trace::Advice> best;
  for (const std::vector<trace::Round>& of_rank : rounds) {
    const std::optional<trace::Advice> a = trace::advise(of_rank, min_frame_ns);
    if (a && (!best || a->spared_ns > best->spared_ns)) best = a;
  }
  report.json["bucket_cap_mb"] = best ? Json(best->bucket_cap_mb) : Json(nullptr);
  if (!best) return;
  report.text += fmt::format(
      "\nadvice: bucket_cap_mb={:g} for DistributedDataParallel (its largest bucket has {:.1f} MB): a step "
      "would be "
      "over about {:.1f} ms of {:.1f} earlier\n",
      best->bucket_cap_mb, best->largest_mb, ms(best->spared_ns), ms(best->step_ns));
}

// The ranks that the others wait for longer than `percent` of a step.
void print_late(const std::vector<trace::Late>& late, double percent, Report& report) {
  for (std::size_t r = 0; r < late.size(); ++r) {
    const trace::Late& one = late[r];
    Json& json = report.json["ranks"][r];
    json["late_ms"] = ms(one.cost_ns);
    json["late_in"] = one.last_in;
    if (one.cost_ns <= 0 || 100 * one.share() < percent) continue;
    report.text += fmt::format(
        "\nrank {} is late: it hands over its last bucket after all others in {} of {} steps; "
        "they wait {:.1f} ms of {:.1f} per step for it ({:.0f}%)\n",
        r, one.last_in, one.rounds, ms(one.cost_ns), ms(one.step_ns), 100 * one.share());
  }
}

Status write_merged(const fs::path& path, const std::vector<RankTrace>& traces,
                    const std::vector<Message>& messages, const std::vector<Clock>& clocks) {
  std::string text;
  trace::merge(traces, messages, clocks, [&](std::string_view piece) { text += piece; });
  return write_file(path, text);
}

Result<Report> run(const TraceArgs& args) {
  Result<std::vector<RankTrace>> traces = read_all(args.files);
  if (!traces.ok()) return traces.status();
  const Result<trace::Matched> matched = trace::match(*traces);
  if (!matched.ok()) return matched.status();
  const Result<std::vector<Clock>> clocks = trace::align(*traces, matched->messages);
  if (!clocks.ok()) return clocks.status();
  std::vector<std::vector<trace::Round>> rounds;
  for (const RankTrace& t : *traces) rounds.push_back(trace::rounds_of(t));
  Report report;
  report.json["frames"] = matched->messages.size();
  report.json["frames_alone"] = matched->alone;
  report.json["ranks"] = Json::array();
  print_clocks(*traces, *clocks, report);
  report.text += fmt::format("{} frames arrived", matched->messages.size());
  if (matched->alone > 0)
    report.text +=
        fmt::format("; {} events of frames are unmatched, in rounds that did not end", matched->alone);
  report.text += '\n';
  print_accounts(*traces, rounds, report);
  print_late(trace::late(rounds, *clocks), args.late, report);
  print_advice(rounds, min_transit(*traces, matched->messages, *clocks), report);
  if (!args.out.empty()) {
    TITHE_TRY(write_merged(args.out, *traces, matched->messages, *clocks));
    report.json["out"] = args.out;
    report.text += fmt::format("\n{}: all ranks, for https://ui.perfetto.dev\n", args.out);
  }
  return report;
}

Run declare_trace(CLI::App& app) {
  auto args = std::make_shared<TraceArgs>();
  app.add_option("FILES", args->files, "the traces of all ranks, as TITHE_TRACE=FILE leaves them")
      ->required();
  app.add_option("--late", args->late,
                 "report ranks for which all others wait longer than this percentage of a step")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  add_output(app, "-o,--out", args->out, "a Chrome trace of all ranks by one clock, for Perfetto");
  return [args] { return run(*args); };
}

}  // namespace

const Verb trace_verb = {.name = "trace",
                         .doc = "merge the traces of all ranks, and show where their steps went",
                         .declare = declare_trace};

}  // namespace tithe::cli
