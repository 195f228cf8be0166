// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps that may run now, of all jobs, in the order in which they are to.
//
//   first     higher priority first; of equals, steps that lead to a send before those that do not; of these, buckets
//             in the order in which they came, and the steps of each in that of its program: part by part. When a step
//             became ready plays no part
//   cheap     a step in and out costs the same, however many are ready
//   steady    allocates in add() alone
//
// Why sends come before parts: another rank waits for what a send brings, and nobody for what a store leaves behind. So
// the wire is never idle while something could be sent, and stores fill the time in which this rank would wait. Where
// computing takes longer than sending, all of it is to be done anyway, and what is left for the end waits for no one.
#include <span>
#include <vector>

#include "base/number_set.h"
#include "engine/run/job.h"

namespace tithe::engine {

struct Task {
  Job* job = nullptr;
  int step = 0;
  const Step& what() const { return job->step(step); }
};

class Ready {
 public:
  // levels: which of a program's steps come in here.
  explicit Ready(std::vector<Level> Program::*levels) : levels_of_(levels) {}

  void add(const Job& job);     // the next number
  void forget(const Job& job);  // nothing of it is ready
  void begin(Job& job);         // its order among the buckets that are under way is set

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
  struct JobReady {  // of one job, by its levels
    std::vector<std::int64_t> urgency;
    std::vector<std::size_t> level;  // among those of all jobs
    std::vector<NumberSet> steps;    // by place
    std::vector<std::size_t> own;    // by level of all jobs: the own one
  };
  // Where the first step is, as long as that is known: to find it is to look into memory that is far apart.
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
  std::vector<Job*> at_;               // by order; there is room for so many jobs
  std::vector<std::int64_t> urgency_;  // by level of all jobs
  std::vector<NumberSet>
      jobs_;          // by level of all jobs, the most urgent first: the orders of those that have a step
  NumberSet levels_;  // that have a job
  std::size_t count_ = 0;
  Front front_;
};

}  // namespace tithe::engine
