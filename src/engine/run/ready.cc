// SPDX-License-Identifier: Apache-2.0
#include "engine/run/ready.h"

#include <algorithm>
#include <functional>

namespace tithe::engine {

// Levels are numbered anew: jobs under way keep what they have ready.
void Ready::add(const Job& job) {
  Own mine;
  for (const Level& level : job.program->*levels_of_) {
    mine.urgency.push_back(level.urgency);
    mine.steps.emplace_back().resize(level.steps.size());
  }
  own_.push_back(std::move(mine));
  at_.resize(own_.size());

  std::vector<std::int64_t> all;
  for (const Own& own : own_) all.insert(all.end(), own.urgency.begin(), own.urgency.end());
  std::sort(all.begin(), all.end(), std::greater<>());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  jobs_.resize(all.size());
  for (NumberSet& jobs : jobs_) jobs.resize(own_.size());
  levels_.resize(all.size());
  for (Own& own : own_) {
    own.level.clear();
    own.own.assign(all.size(), 0);
    for (std::size_t l = 0; l < own.urgency.size(); ++l) {
      const auto at = std::find(all.begin(), all.end(), own.urgency[l]);
      own.level.push_back(static_cast<std::size_t>(at - all.begin()));
      own.own[own.level.back()] = l;
    }
  }
  for (std::size_t order = 0; order < at_.size(); ++order) {
    if (at_[order] == nullptr) continue;
    const Own& own = own_[at_[order]->number];
    for (std::size_t l = 0; l < own.steps.size(); ++l) {
      if (at_[order]->order != order || own.steps[l].empty()) continue;
      jobs_[own.level[l]].insert(order);
      levels_.insert(own.level[l]);
    }
  }
}

void Ready::forget(const Job& job) { own_[job.number] = {}; }

void Ready::begin(Job& job) { at_[job.order] = &job; }

void Ready::push(const Task& task) {
  const Step& step = task.what();
  Own& own = own_[task.job->number];
  NumberSet& steps = own.steps[step.level];
  if (steps.empty()) {
    NumberSet& jobs = jobs_[own.level[step.level]];
    if (jobs.empty()) levels_.insert(own.level[step.level]);
    jobs.insert(task.job->order);
  }
  steps.insert(step.place);
  ++count_;
}

Task Ready::first() const {
  const std::size_t level = levels_.least();
  Job* job = at_[jobs_[level].least()];
  const Own& own = own_[job->number];
  const std::size_t l = own.own[level];
  return {job, (job->program->*levels_of_)[l].steps[own.steps[l].least()]};
}

void Ready::remove(const Task& task) {
  const Step& step = task.what();
  Own& own = own_[task.job->number];
  NumberSet& steps = own.steps[step.level];
  steps.erase(step.place);
  if (steps.empty()) {
    const std::size_t level = own.level[step.level];
    jobs_[level].erase(task.job->order);
    if (jobs_[level].empty()) levels_.erase(level);
  }
  --count_;
}

void Ready::clear() {
  for (Own& own : own_)
    for (NumberSet& steps : own.steps) steps.clear();
  for (NumberSet& jobs : jobs_) jobs.clear();
  levels_.clear();
  count_ = 0;
}

}  // namespace tithe::engine
