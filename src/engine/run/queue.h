// SPDX-License-Identifier: Apache-2.0
#pragma once
// The queue holds the jobs of a session, the steps that may run, and the messages that may be sent. It has no
// threads, no clock and no transport: the runner calls it under its mutex.
//
//   free      a step is ready when its part has begun and the steps that it waits for have run; jobs do not wait for
//             each other
//   ordered   sends to one peer on one channel become ready in the order of the graph: each waits for the one
//             before
//   first     ready.h orders the ready steps, whichever became ready first
//   several   light steps are taken several at a time, under one lock acquisition
//   together  a group of steps (Job::together) becomes ready when all its steps are ready, and is one task
//   steady    after add(), the rounds of a job allocate nothing
#include <span>
#include <vector>

#include "base/fifo.h"
#include "engine/run/ready.h"

namespace tithe::engine {

class Queue {
  static constexpr std::size_t kLight = 16384;  // values

 public:
  // Adds a new layout under the next number; its card is not written yet.
  Job& add(std::unique_ptr<Unit> unit, Card card);
  // Adds a program whose steps are not executed, for a simulator. `program` must outlive the queue.
  Job& add(const Program& program);
  // By number. A removed layout leaves an idle job.
  std::span<const std::unique_ptr<Job>> jobs() const { return jobs_; }
  Job& job(std::size_t number) const { return *jobs_[number]; }

  // Queues the job's card for sending.
  void show(Job& job);

  // Removes a layout. No round of it may be open, and none may begin. Its number is not reused. The caller destroys
  // the unit.
  std::unique_ptr<Unit> forget(Job& job);

  // Sets the ready time of steps that become ready from now on.
  void at(std::int64_t now_ns) { now_ns_ = now_ns; }

  // Begins a round of a job: all steps are pending until run(). If its cards are not agreed, queues its card.
  void begin(Job& job, Instant now);
  // Makes the job's first steps ready.
  void run(Job& job);
  // The transport has accepted a send. Releases the steps after it, except receives, which reuse its memory.
  void posted(const Task& task) { release_next(task, false); }
  // A step has run, or its message has been sent or received. Returns true if it was the job's last step.
  bool finished(const Task& task);

  static std::size_t weight(const Task& task);  // of all steps that run together
  // Takes the next compute steps: one, or several light ones, but at most one lane's share of the ready steps.
  // Returns the number of tasks stored in `out`.
  std::size_t take(std::span<Task> out, int lanes);
  Ready& post() { return post_; }         // sends and receives
  Fifo<Job*>& cards() { return cards_; }  // jobs whose card must be sent
  // True if there are ready compute steps that are light in total. The communication lane then runs them itself,
  // which takes less time than waking another thread twice.
  bool light() const { return compute_.size() > 0 && weight_ <= kLight; }
  // The number of compute steps that became ready since the last call.
  std::size_t take_fresh() { return std::exchange(fresh_, 0); }

  int active() const { return active_; }  // jobs that are neither idle nor done
  void drop();                            // discards all steps that have not begun

 private:
  void begin_parts(Job& job);
  void enqueue(const Task& task);
  void release_next(const Task& task, bool receives);
  void end(Job& job);

  std::vector<std::unique_ptr<Job>> jobs_;
  Ready compute_{&Program::compute_levels}, post_{&Program::mail_levels};
  Fifo<Job*> cards_;
  std::size_t fresh_ = 0;
  std::size_t weight_ = 0;
  std::size_t begun_ = 0;  // jobs begun since no job was active
  int active_ = 0;
  std::int64_t now_ns_ = 0;
};

}  // namespace tithe::engine
