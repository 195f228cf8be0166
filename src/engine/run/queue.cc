// SPDX-License-Identifier: Apache-2.0
#include "engine/run/queue.h"

#include <algorithm>

namespace tithe::engine {

Job& Queue::add(std::unique_ptr<Unit> unit, Card card) {
  Job& job = add(unit->program());
  job.posted_ns.resize(job.waits.size());
  job.ready_ns.resize(job.waits.size());
  job.unit = std::move(unit);
  card.number = job.number;
  job.card = std::move(card);
  return job;
}

Job& Queue::add(const Program& program) {
  auto job = std::make_unique<Job>();
  const std::size_t steps = program.steps.size();
  job->program = &program;
  job->number = static_cast<std::uint32_t>(jobs_.size());
  job->waits.resize(steps);
  job->left.resize(program.parts.size());
  compute_.add(*job);
  post_.add(*job);
  jobs_.push_back(std::move(job));
  cards_.reserve(jobs_.size());
  return *jobs_.back();
}

std::unique_ptr<Unit> Queue::forget(Job& job) {
  TITHE_ASSERT(job.state == Job::State::kDone || job.state == Job::State::kIdle);
  compute_.forget(job);
  post_.forget(job);
  job.state = Job::State::kIdle;
  job.card = {};
  job.program = nullptr;
  std::vector<int>().swap(job.waits);
  std::vector<std::size_t>().swap(job.left);
  std::vector<std::int64_t>().swap(job.posted_ns);
  std::vector<std::int64_t>().swap(job.ready_ns);
  job.labels = {};
  return std::move(job.unit);
}

void Queue::begin(Job& job, Instant now) {
  job.waits = job.program->waits;
  job.unfinished = job.waits.size();
  job.over = job.begun_parts = 0;
  for (std::size_t p = 0; p < job.left.size(); ++p) job.left[p] = job.program->parts[p].steps;
  job.missing.clear();
  if (job.unit != nullptr)
    for (const std::vector<int>& steps : job.unit->groups().steps) job.missing.push_back(steps.size());
  job.state = Job::State::kAwaitsCards;
  job.began = now;
  if (active_++ == 0) begun_ = 0;
  job.order = begun_++;
  compute_.begin(job);
  post_.begin(job);
  if (!job.agreed) show(job);
}

void Queue::show(Job& job) {
  if (!std::exchange(job.shown, true)) cards_.push(&job);
}

void Queue::run(Job& job) {
  job.state = Job::State::kRuns;
  if (job.unfinished == 0) return end(job);
  begin_parts(job);
}

// Begins all parts that the window allows (program.h, "Window").
void Queue::begin_parts(Job& job) {
  const std::vector<PartLayout>& parts = job.program->parts;
  while (job.over < parts.size() && job.left[job.over] == 0) ++job.over;
  for (; job.begun_parts < parts.size(); ++job.begun_parts) {
    const PartLayout& part = parts[job.begun_parts];
    if (part.begins_after >= static_cast<int>(job.over)) return;
    for (const int step : part.first) enqueue({&job, step});
  }
}

// A step that becomes ready in a batch waits for the whole batch, so the weight of a batch is limited to about ten
// microseconds of any codec.
std::size_t Queue::take(std::span<Task> out, int lanes) {
  constexpr std::size_t kBatchWeight = 8192;
  const std::size_t share =
      (compute_.size() + static_cast<std::size_t>(lanes) - 1) / static_cast<std::size_t>(lanes);
  const std::size_t most = std::min(out.size(), share);
  std::size_t count = 0, weight = 0;
  while (count < most) {
    const Task next = compute_.first();
    const std::size_t own = Queue::weight(next);
    weight += own;
    if (count > 0 && weight > kBatchWeight) break;
    compute_.remove(next);
    weight_ -= own;
    out[count++] = next;
  }
  return count;
}

std::size_t Queue::weight(const Task& task) {
  std::size_t all = 0;
  for (const int step : task.job->together(task.step)) all += task.job->step(step).weight;
  return all;
}

void Queue::enqueue(const Task& task) {
  if (task.job->unit != nullptr) task.job->ready_ns[static_cast<std::size_t>(task.step)] = now_ns_;
  const StepKind kind = task.what().kind;
  if (kind == StepKind::kSend || kind == StepKind::kRecv) {
    post_.push(task);
  } else {
    if (const int group = task.group();
        group >= 0 && --task.job->missing[static_cast<std::size_t>(group)] > 0)
      return;
    compute_.push(task);
    weight_ += weight(task);
    ++fresh_;
  }
}

// Releases the steps after `task`. After a send, releases only receives or only other steps; after any other step,
// releases all.
void Queue::release_next(const Task& task, bool receives) {
  const bool sent = task.what().kind == StepKind::kSend;
  const Program& p = *task.job->program;
  const Range next = task.what().next;
  for (std::uint32_t k = 0; k < next.count; ++k) {
    const int step = p.indices[next.first + k];
    if (sent && (p.steps[static_cast<std::size_t>(step)].kind == StepKind::kRecv) != receives) continue;
    if (--task.job->waits[static_cast<std::size_t>(step)] == 0) enqueue({task.job, step});
  }
}

// For a send, posted() has already released all following steps except receives.
bool Queue::finished(const Task& task) {
  release_next(task, true);
  const auto part = static_cast<std::size_t>(task.what().part);
  if (--task.job->unfinished > 0) {
    if (--task.job->left[part] == 0) begin_parts(*task.job);
    return false;
  }
  if (task.job->unit != nullptr) task.job->unit->end();
  end(*task.job);
  return true;
}

void Queue::end(Job& job) {
  job.state = Job::State::kDone;
  --active_;
}

void Queue::drop() {
  compute_.clear();
  post_.clear();
  cards_.clear();
  weight_ = 0;
}

}  // namespace tithe::engine
