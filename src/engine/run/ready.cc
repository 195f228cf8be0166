// SPDX-License-Identifier: Apache-2.0
#include "engine/run/ready.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace tithe::engine {

// The levels of all jobs are merged into one sorted list of urgencies. If a new job's levels are all in the list,
// only the job itself gets numbers; otherwise all jobs are renumbered.
void Ready::add(const Job& job) {
  JobReady mine;
  for (const Level& level : job.program->*levels_of_) {
    mine.urgency.push_back(level.urgency);
    mine.steps.emplace_back().resize(level.steps.size());
  }
  const bool known = std::ranges::all_of(mine.urgency, [&](std::int64_t urgency) {
    return std::ranges::binary_search(urgency_, urgency, std::greater<>());
  });
  own_.push_back(std::move(mine));
  if (known && own_.size() <= at_.size()) return number(own_.back());
  renumber();
}

void Ready::number(JobReady& own) const {
  own.level.clear();
  own.own.assign(urgency_.size(), 0);
  for (std::size_t l = 0; l < own.urgency.size(); ++l) {
    const auto at = std::ranges::lower_bound(urgency_, own.urgency[l], std::greater<>());
    own.level.push_back(static_cast<std::size_t>(at - urgency_.begin()));
    own.own[own.level.back()] = l;
  }
}

// Rebuilds the merged list of levels. Jobs in progress keep their ready steps. The capacity doubles, so the cost per
// job is constant.
void Ready::renumber() {
  front_ = {};
  if (own_.size() > at_.size()) at_.resize(2 * own_.size());
  urgency_.clear();
  for (const JobReady& own : own_) urgency_.insert(urgency_.end(), own.urgency.begin(), own.urgency.end());
  std::ranges::sort(urgency_, std::greater<>());
  urgency_.erase(std::unique(urgency_.begin(), urgency_.end()), urgency_.end());
  jobs_.resize(urgency_.size());
  for (NumberSet& jobs : jobs_) jobs.resize(at_.size());
  levels_.resize(urgency_.size());
  for (JobReady& own : own_) number(own);
  for (std::size_t order = 0; order < at_.size(); ++order) {
    if (at_[order] == nullptr) continue;
    const JobReady& own = own_[at_[order]->number];
    for (std::size_t l = 0; l < own.steps.size(); ++l) {
      if (at_[order]->order != order || own.steps[l].empty()) continue;
      jobs_[own.level[l]].insert(order);
      levels_.insert(own.level[l]);
    }
  }
}

void Ready::forget(const Job& job) { own_[job.number] = {}; }

void Ready::begin(Job& job) { at_[job.order] = &job; }

// Keeps front_ unless the new step precedes it: front_ is valid while its set of steps is not empty and no earlier
// set becomes non-empty.
void Ready::push(const Task& task) {
  const Step& step = task.what();
  JobReady& own = own_[task.job->number];
  NumberSet& steps = own.steps[step.level];
  if (steps.empty()) {
    const std::size_t level = own.level[step.level];
    NumberSet& jobs = jobs_[level];
    if (jobs.empty()) levels_.insert(level);
    jobs.insert(task.job->order);
    if (front_.job != nullptr &&
        std::pair(level, task.job->order) < std::pair(front_.level, front_.job->order))
      front_ = {};
  }
  steps.insert(step.place);
  ++count_;
}

Task Ready::first() {
  if (front_.job == nullptr) {
    const std::size_t level = levels_.least();
    Job* job = at_[jobs_[level].least()];
    const JobReady& own = own_[job->number];
    const std::size_t l = own.own[level];
    front_ = {job, level, &own.steps[l], &(job->program->*levels_of_)[l].steps};
  }
  return {front_.job, (*front_.step_of)[front_.steps->least()]};
}

void Ready::remove(const Task& task) {
  const Step& step = task.what();
  JobReady& own = own_[task.job->number];
  NumberSet& steps = own.steps[step.level];
  steps.erase(step.place);
  if (steps.empty()) {
    const std::size_t level = own.level[step.level];
    jobs_[level].erase(task.job->order);
    if (jobs_[level].empty()) levels_.erase(level);
    if (front_.steps == &steps) front_ = {};
  }
  --count_;
}

void Ready::clear() {
  for (JobReady& own : own_)
    for (NumberSet& steps : own.steps) steps.clear();
  for (NumberSet& jobs : jobs_) jobs.clear();
  levels_.clear();
  count_ = 0;
  front_ = {};
}

}  // namespace tithe::engine
