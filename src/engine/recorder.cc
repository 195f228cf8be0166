// SPDX-License-Identifier: Apache-2.0
#include "engine/recorder.h"

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

}  // namespace

void Recorder::trace(bool on) {
  tracing_ = on;
  if (on) events_.reserve(kTraceEvents);
}

std::vector<TraceEvent> Recorder::take_trace() {
  std::vector<TraceEvent> out;
  out.reserve(events_.size());
  while (!events_.empty()) out.push_back(events_.pop());
  return out;
}

void Recorder::note(const Task& task, std::uint32_t round, int lane, std::int64_t begin, std::int64_t end) {
  const Step& step = task.what();
  const auto spent = static_cast<std::uint64_t>(end - begin);
  if (step.kind == StepKind::kEncode || step.kind == StepKind::kOwn) stats_.encode_ns += spent;
  if (step.kind == StepKind::kMerge || step.kind == StepKind::kStore) stats_.merge_ns += spent;
  if (!tracing_ || step.kind == StepKind::kLoad || step.kind == StepKind::kUnload) return;
  if (events_.size() == kTraceEvents) events_.pop();
  const Unit& unit = *task.job->unit;
  const bool has_frame = step.slot >= 0 && step.kind != StepKind::kStore && step.kind != StepKind::kMerge;
  events_.push({op_name(step.kind), round, unit.channel(step.part) - 1, step.chunk, step.peer, lane, begin,
                end, has_frame ? unit.outgoing(step).size() : 0});
}

}  // namespace tithe::engine
