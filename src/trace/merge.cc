// SPDX-License-Identifier: Apache-2.0
// Writes the merged trace rank by rank. All times are on rank 0's clock, relative to the earliest event.
#include "trace/merge.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "trace/chrome.h"

namespace tithe::trace {
namespace {

constexpr std::size_t kMergedPiece = 1U << 16;
constexpr std::int64_t kTickNs = 1000;  // longest drawn duration of a submission or an arrival

std::size_t index_of(int rank) { return static_cast<std::size_t>(rank); }

// A point on a rank's network thread, at which an arrow begins or ends.
struct Tick {
  std::int64_t when = 0;
  std::size_t event = 0;
  std::uint64_t arrow = 0;  // 0: none
};

// A change of the bytes in flight.
struct Change {
  std::int64_t when = 0, bytes = 0;
};

class Merger {
 public:
  Merger(std::span<const RankTrace> traces, std::span<const Message> messages, std::span<const Clock> clocks,
         const Sink& sink)
      : traces_(traces), clocks_(clocks), sink_(sink), ticks_(traces.size()), changes_(traces.size()) {
    zero_ = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < traces.size(); ++r) {
      sent_.emplace_back(traces[r].events.size());
      for (const TraceEvent& e : traces[r].events)
        zero_ = std::min(zero_, clocks_[r].by_rank0(std::min(e.begin_ns, e.ready_ns)));
    }
    for (std::size_t m = 0; m < messages.size(); ++m) arrow(messages[m], m + 1);
  }

  void all() {
    out_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    for (std::size_t r = 0; r < traces_.size(); ++r) rank(r);
    Chrome(out_).last(0);
    sink_(out_);
  }

 private:
  std::int64_t time(std::size_t rank, std::int64_t own) const { return clocks_[rank].by_rank0(own) - zero_; }
  const TraceEvent& event(int rank, std::size_t i) const { return traces_[index_of(rank)].events[i]; }

  void arrow(const Message& m, std::uint64_t id) {
    const TraceEvent& send = event(m.from, m.send);
    const TraceEvent& recv = event(m.to, m.recv);
    const std::int64_t begin = time(index_of(m.from), send.begin_ns);
    const std::int64_t end = std::max(begin, time(index_of(m.to), recv.end_ns));
    sent_[index_of(m.to)][m.recv] = begin;
    ticks_[index_of(m.from)].push_back({begin, m.send, id});
    ticks_[index_of(m.to)].push_back({end, m.recv, id});
    changes_[index_of(m.from)].push_back({begin, static_cast<std::int64_t>(send.bytes)});
    changes_[index_of(m.from)].push_back({end, -static_cast<std::int64_t>(send.bytes)});
  }

  void rank(std::size_t r) {
    const RankTrace& trace = traces_[r];
    const int me = trace.origin.rank;
    int lanes = 0;
    for (const TraceEvent& e : trace.events) lanes = std::max(lanes, e.lane);
    Chrome chrome(out_);
    chrome.process(me, trace.origin.host, lanes);
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
      one(r, i);
      spill();
    }
    ticks(r);
    std::sort(changes_[r].begin(), changes_[r].end(), [](const Change& a, const Change& b) {
      return a.when != b.when ? a.when < b.when : a.bytes > b.bytes;
    });
    std::int64_t bytes = 0;
    for (const Change& c : changes_[r]) {
      chrome.counter(me, "bytes under way", c.when, bytes += c.bytes);
      spill();
    }
  }

  void one(std::size_t r, std::size_t i) {
    TraceEvent e = traces_[r].events[i];
    const int me = traces_[r].origin.rank;
    e.ready_ns = time(r, e.ready_ns);
    e.begin_ns = time(r, e.begin_ns);
    e.end_ns = time(r, e.end_ns);
    Chrome chrome(out_);
    std::string args = args_of(e, 0);
    if (is_step(e)) {
      args += ",\"queued_us\":";
      put_us(args, std::max<std::int64_t>(0, e.begin_ns - e.ready_ns));
    }
    std::int64_t begin = e.begin_ns;
    if (e.op == "recv" && is_message(e)) {
      args += ",\"posted_us\":";
      put_us(args, e.begin_ns);
      begin = std::min(sent_[r][i].value_or(begin), e.end_ns);
    }
    chrome.event(me, id_, e, begin, e.end_ns, args);
  }

  void ticks(std::size_t r) {
    std::vector<Tick>& ticks = ticks_[r];
    std::stable_sort(ticks.begin(), ticks.end(),
                     [](const Tick& a, const Tick& b) { return a.when < b.when; });
    const int me = traces_[r].origin.rank;
    Chrome chrome(out_);
    for (std::size_t i = 0; i < ticks.size(); ++i) {
      const Tick& tick = ticks[i];
      const TraceEvent& e = traces_[r].events[tick.event];
      std::int64_t end = tick.when + kTickNs;
      if (i + 1 < ticks.size()) end = std::min(end, ticks[i + 1].when);
      chrome.slice(me, kNetwork, title_of(e), tick.when, end, "network", {});
      chrome.flow(me, kNetwork, tick.arrow, e.op == "send", tick.when);
      spill();
    }
  }

  void spill() {
    if (out_.size() < kMergedPiece) return;
    sink_(out_);
    out_.clear();
  }

  std::span<const RankTrace> traces_;
  std::span<const Clock> clocks_;
  const Sink& sink_;
  std::int64_t zero_ = 0;
  std::uint64_t id_ = 0;
  std::vector<std::vector<std::optional<std::int64_t>>> sent_;  // by rank and event: submission of the frame
  std::vector<std::vector<Tick>> ticks_;                        // by rank
  std::vector<std::vector<Change>> changes_;                    // by rank
  std::string out_;
};

}  // namespace

void merge(std::span<const RankTrace> traces, std::span<const Message> messages,
           std::span<const Clock> clocks, const Sink& sink) {
  Merger(traces, messages, clocks, sink).all();
}

}  // namespace tithe::trace
