// SPDX-License-Identifier: Apache-2.0
#include "engine/run/recorder.h"

#include <algorithm>

namespace tithe::engine {
namespace {

constexpr std::size_t kRingEvents = 65'536;
constexpr std::size_t kKeptEvents = 262'144;  // per lane

// By StepKind.
constexpr std::string_view kOps[] = {"load", "own", "encode", "send", "recv", "check", "merge", "store"};

// Only the lane itself writes its sums, so no atomic addition is needed.
void add(std::atomic<std::uint64_t>& sum, std::uint64_t more) {
  sum.store(sum.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

void sort_by_end(std::vector<TraceEvent>& events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.end_ns < b.end_ns; });
}

}  // namespace

Recorder::Recorder(int lanes) {
  for (int lane = 0; lane <= std::max(1, lanes) + 1; ++lane) lanes_.push_back(std::make_unique<Lane>());
}

SessionStats Recorder::total() const {
  SessionStats all = stats_;
  all.events_lost = cut_.load(std::memory_order_relaxed);
  for (const auto& lane : lanes_) {
    all.encode_ns += lane->encode_ns.load(std::memory_order_relaxed);
    all.merge_ns += lane->merge_ns.load(std::memory_order_relaxed);
    all.send_ns += lane->send_ns.load(std::memory_order_relaxed);
    const std::lock_guard lock(lane->mutex);
    all.events_lost += lane->pushed_out;
  }
  return all;
}

// ---- Reading

void Recorder::trace(bool on) {
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    if (on) lane->ring.reserve(kRingEvents);
  }
  ring_on_ = on;
}

std::vector<TraceEvent> Recorder::take_trace() {
  std::vector<TraceEvent> out;
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    out.insert(out.end(), lane->ring.begin(), lane->ring.end());
    lane->ring.clear();
    lane->oldest = 0;
  }
  sort_by_end(out);
  if (out.size() > kRingEvents) {
    cut_ += out.size() - kRingEvents;
    out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(kRingEvents));
  }
  return out;
}

void Recorder::keep() {
  // The system maps the pages as they fill.
  for (const auto& lane : lanes_) lane->first.reserve(kKeptEvents);
  kept_on_ = true;
}

Recorder::Recording Recorder::kept() const {
  Recording out;
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    out.events.insert(out.events.end(), lane->first.begin(), lane->first.end());
    out.lost += lane->not_kept;
  }
  sort_by_end(out.events);
  return out;
}

// ---- Writing

std::string_view Recorder::name(std::string_view text) {
  const std::lock_guard lock(names_mutex_);
  const auto there = names_.find(text);
  return there != names_.end() ? *there : *names_.emplace(text).first;
}

Labels Recorder::labels(const Unit& unit) {
  Labels labels;
  const std::span<const TensorLayout> tensors = unit.tensors();
  for (const TensorLayout& t : tensors) labels.bytes += t.n * bytes_of(t.dtype);
  for (const Part& part : unit.plan().parts) {
    // The last tensor that begins at or before the part's first value: earlier tensors that begin there are empty.
    const auto after = std::upper_bound(tensors.begin(), tensors.end(), part.first,
                                        [](std::size_t at, const TensorLayout& t) { return at < t.first; });
    const std::string_view key = after == tensors.begin() ? std::string_view() : std::prev(after)->key;
    labels.parts.push_back({name(key), name(part.spec.codec->name)});
  }
  return labels;
}

// Once one lane's recording is full, no lane records further events: so a round whose commit is kept is complete.
void Recorder::write(Lane& lane, const TraceEvent& event) {
  const std::lock_guard lock(lane.mutex);
  if (kept_on_.load(std::memory_order_relaxed)) {
    if (lane.first.size() == kKeptEvents) full_.store(true, std::memory_order_relaxed);
    if (full_.load(std::memory_order_relaxed))
      ++lane.not_kept;
    else
      lane.first.push_back(event);
  }
  if (!ring_on_.load(std::memory_order_relaxed)) return;
  if (lane.ring.size() < kRingEvents) {
    lane.ring.push_back(event);
  } else {
    lane.ring[lane.oldest] = event;
    lane.oldest = (lane.oldest + 1) % kRingEvents;
    ++lane.pushed_out;
  }
}

void Recorder::note(const Task& task, std::uint32_t round, int lane, std::int64_t begin, std::int64_t end) {
  const Step& step = task.what();
  Lane& own = *lanes_[static_cast<std::size_t>(lane)];
  const auto spent = static_cast<std::uint64_t>(end - begin);
  if (step.kind == StepKind::kEncode || step.kind == StepKind::kOwn) add(own.encode_ns, spent);
  if (step.kind == StepKind::kMerge || step.kind == StepKind::kStore) add(own.merge_ns, spent);
  if (step.kind == StepKind::kSend) add(own.send_ns, spent);
  if (!on()) return;
  const Job& job = *task.job;
  const Labels::PartNames& names = job.labels.parts[static_cast<std::size_t>(step.part)];
  const bool has_frame = step.slot >= 0 && step.kind != StepKind::kStore && step.kind != StepKind::kMerge;
  write(own, {.op = kOps[static_cast<std::size_t>(step.kind)],
              .round = round,
              .bucket = job.number,
              .part = job.unit->channel(step.part) - 1,
              .chunk = step.chunk,
              .phase = step.phase,
              .peer = step.peer,
              .lane = lane,
              .ready_ns = job.ready_ns[static_cast<std::size_t>(task.step)],
              .begin_ns = begin,
              .end_ns = end,
              .bytes = has_frame ? job.unit->outgoing(step).size() : 0,
              .key = names.key,
              .codec = names.codec});
}

void Recorder::bucket(const Job& job, std::uint32_t round, std::int64_t begin, std::int64_t end) {
  if (!on()) return;
  write(*lanes_.back(), {.op = "bucket",
                         .round = round,
                         .bucket = job.number,
                         .lane = -1,
                         .ready_ns = begin,
                         .begin_ns = begin,
                         .end_ns = end,
                         .bytes = job.labels.bytes,
                         .key = job.labels.parts.empty() ? std::string_view() : job.labels.parts[0].key});
}

void Recorder::call(std::string_view op, std::uint32_t round, std::int64_t begin, std::int64_t end) {
  if (!on()) return;
  write(*lanes_.back(),
        {.op = op, .round = round, .lane = -1, .ready_ns = begin, .begin_ns = begin, .end_ns = end});
}

}  // namespace tithe::engine
