// SPDX-License-Identifier: Apache-2.0
#include "engine/recorder.h"

#include <algorithm>

namespace tithe::engine {
namespace {

constexpr std::size_t kTraceEvents = 65536;

std::string_view op_name(StepKind kind) {
  switch (kind) {
    case StepKind::kOwn:
    case StepKind::kEncode:
      return "encode";
    case StepKind::kSend:
      return "send";
    case StepKind::kRecv:
      return "recv";
    case StepKind::kMerge:
      return "merge";
    case StepKind::kStore:
      return "store";
    case StepKind::kCheck:
      return "check";
    case StepKind::kLoad:
      return "load";
    case StepKind::kUnload:
      return "unload";
  }
  return "";
}

// A lane is the only one that writes its own sums.
void add(std::atomic<std::uint64_t>& sum, std::uint64_t more) {
  sum.store(sum.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

Recorder::Recorder(int lanes) {
  for (int lane = 0; lane <= std::max(1, lanes); ++lane) lanes_.push_back(std::make_unique<Lane>());
}

SessionStats Recorder::total() const {
  SessionStats all = stats_;
  for (const auto& lane : lanes_) {
    all.encode_ns += lane->encode_ns.load(std::memory_order_relaxed);
    all.merge_ns += lane->merge_ns.load(std::memory_order_relaxed);
    all.send_ns += lane->send_ns.load(std::memory_order_relaxed);
  }
  return all;
}

void Recorder::trace(bool on) {
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    if (on) lane->events.reserve(kTraceEvents);
  }
  tracing_ = on;
}

std::vector<TraceEvent> Recorder::take_trace() {
  std::vector<TraceEvent> out;
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    while (!lane->events.empty()) out.push_back(lane->events.pop());
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.end_ns < b.end_ns; });
  if (out.size() > kTraceEvents)
    out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(kTraceEvents));
  return out;
}

void Recorder::note(const Task& task, std::uint32_t round, int lane, std::int64_t begin, std::int64_t end) {
  const Step& step = task.what();
  Lane& own = *lanes_[static_cast<std::size_t>(lane)];
  const auto spent = static_cast<std::uint64_t>(end - begin);
  if (step.kind == StepKind::kEncode || step.kind == StepKind::kOwn) add(own.encode_ns, spent);
  if (step.kind == StepKind::kMerge || step.kind == StepKind::kStore) add(own.merge_ns, spent);
  if (step.kind == StepKind::kSend) add(own.send_ns, spent);
  if (!tracing_.load(std::memory_order_relaxed) || step.kind == StepKind::kLoad ||
      step.kind == StepKind::kUnload)
    return;
  const Unit& unit = *task.job->unit;
  const bool has_frame = step.slot >= 0 && step.kind != StepKind::kStore && step.kind != StepKind::kMerge;
  const std::lock_guard lock(own.mutex);
  if (own.events.size() == kTraceEvents) own.events.pop();
  own.events.push({op_name(step.kind), round, unit.channel(step.part) - 1, step.chunk, step.peer, lane, begin,
                   end, has_frame ? unit.outgoing(step).size() : 0});
}

}  // namespace tithe::engine
