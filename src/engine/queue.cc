// SPDX-License-Identifier: Apache-2.0
#include "engine/queue.h"

#include <algorithm>

namespace tithe::engine {

Job& Queue::add(std::unique_ptr<Unit> unit, Card card) {
  auto job = std::make_unique<Job>();
  const std::size_t steps = unit->program().steps.size();
  job->unit = std::move(unit);
  job->number = card.number = static_cast<std::uint32_t>(jobs_.size());
  job->card = std::move(card);
  job->waits.resize(steps);
  job->posted_ns.resize(steps);
  capacity_ += steps;
  compute_.reserve(capacity_);
  post_.reserve(capacity_);
  jobs_.push_back(std::move(job));
  cards_.reserve(jobs_.size());
  return *jobs_.back();
}

std::unique_ptr<Unit> Queue::forget(Job& job) {
  TITHE_ASSERT(job.state == Job::State::kDone);
  capacity_ -= job.waits.size();
  job.state = Job::State::kIdle;
  job.card = {};
  std::vector<int>().swap(job.waits);
  std::vector<std::int64_t>().swap(job.posted_ns);
  return std::move(job.unit);
}

void Queue::begin(Job& job, Instant now) {
  job.waits = job.unit->program().waits;
  job.unfinished = job.waits.size();
  job.state = Job::State::kAwaitsCards;
  job.began = now;
  ++active_;
  if (!job.agreed) cards_.push(&job);
}

void Queue::run(Job& job) {
  job.state = Job::State::kRuns;
  if (job.unfinished == 0) return end(job);
  for (const int step : job.unit->program().first) enqueue({&job, step});
}

// What a batch makes ready waits until all of it has run, so a batch is short: some ten microseconds of any codec.
std::size_t Queue::take(std::span<Task> out, int lanes) {
  constexpr std::size_t kBatchWeight = 8192;
  const std::size_t share =
      (compute_.size() + static_cast<std::size_t>(lanes) - 1) / static_cast<std::size_t>(lanes);
  const std::size_t most = std::min(out.size(), share);
  std::size_t count = 0, weight = 0;
  while (count < most) {
    weight += compute_.front().what().weight;
    if (count > 0 && weight > kBatchWeight) break;
    out[count++] = compute_.pop();
  }
  return count;
}

void Queue::enqueue(const Task& task) {
  const StepKind kind = task.what().kind;
  if (kind == StepKind::kSend || kind == StepKind::kRecv) {
    post_.push(task);
  } else {
    compute_.push(task);
    ++fresh_;
  }
}

void Queue::release_next(const Task& task) {
  const Program& p = task.job->unit->program();
  const Range next = task.what().next;
  for (std::uint32_t k = 0; k < next.count; ++k) {
    const int step = p.indices[next.first + k];
    if (--task.job->waits[static_cast<std::size_t>(step)] == 0) enqueue({task.job, step});
  }
}

bool Queue::finished(const Task& task) {
  if (task.what().kind != StepKind::kSend) release_next(task);
  if (--task.job->unfinished > 0) return false;
  task.job->unit->end();
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
}

}  // namespace tithe::engine
