// SPDX-License-Identifier: Apache-2.0
#include "engine/queue.h"

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

void Queue::begin(Job& job, Instant now) {
  const auto& steps = job.unit->program().steps;
  for (std::size_t s = 0; s < steps.size(); ++s) job.waits[s] = steps[s].waits;
  job.unfinished = steps.size();
  job.state = Job::State::kAwaitsCards;
  job.began = now;
  ++active_;
  if (!job.agreed) cards_.push(&job);
}

void Queue::run(Job& job) {
  job.state = Job::State::kRuns;
  if (job.unfinished == 0) return end(job);
  for (std::size_t s = 0; s < job.waits.size(); ++s)
    if (job.unit->program().steps[s].waits == 0) enqueue({&job, static_cast<int>(s)});
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
