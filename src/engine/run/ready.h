// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ready steps of all jobs, in the order in which they should run.
//
//   first     higher priority first; then steps that lead to a send; then buckets in the order of their start, and
//             the steps of a bucket in the order of its program, part by part. The time at which a step became ready
//             does not matter
//   cheap     inserting or removing a step takes constant time
//   steady    only add() allocates
//
// Steps that lead to a send precede the stores of earlier parts, because another rank waits for the send and no rank
// waits for a store. So the link is not idle while a frame could be sent, and stores fill the time in which this rank
// would wait. If computing takes longer than sending, the total is the same in any order, and the steps at the end
// delay no other rank.
#include <span>
#include <vector>

#include "base/number_set.h"
#include "engine/run/job.h"

namespace tithe::engine {

struct Task {
  Job* job = nullptr;
  int step = 0;
  const Step& what() const { return job->step(step); }
  int group() const { return job->unit == nullptr ? -1 : job->unit->groups().at(step); }
};

class Ready {
 public:
  // levels: selects the steps of a program that this container holds.
  explicit Ready(std::vector<Level> Program::*levels) : levels_of_(levels) {}

  void add(const Job& job);     // in the order of job numbers
  void forget(const Job& job);  // none of its steps may be ready
  void begin(Job& job);         // registers job.order for the new round

  void push(const Task& task);
  Task first();
  void remove(const Task& task);
  Task pop() {
    const Task task = first();
    remove(task);
    return task;
  }
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  void clear();

 private:
  struct JobReady {  // of one job; vectors are indexed by the job's own levels unless noted
    std::vector<std::int64_t> urgency;
    std::vector<std::size_t> level;  // the index among all jobs' levels
    std::vector<NumberSet> steps;    // ready steps, by place
    std::vector<std::size_t> own;    // by level of all jobs: the job's own level
  };
  // A cache of the first step's location: a search touches distant memory.
  struct Front {
    Job* job = nullptr;
    std::size_t level = 0;
    const NumberSet* steps = nullptr;
    const std::vector<int>* step_of = nullptr;  // by place
  };

  std::vector<Level> Program::*const levels_of_;
  void number(JobReady& own) const;
  void renumber();

  std::vector<JobReady> own_;          // by job
  std::vector<Job*> at_;               // job by Job::order; its size is the capacity
  std::vector<std::int64_t> urgency_;  // by level of all jobs
  std::vector<NumberSet>
      jobs_;          // by level of all jobs, the most urgent first: the orders of jobs with a ready step
  NumberSet levels_;  // levels with a ready step
  std::size_t count_ = 0;
  Front front_;
};

}  // namespace tithe::engine
