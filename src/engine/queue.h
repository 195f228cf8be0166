// SPDX-License-Identifier: Apache-2.0
#pragma once
// The queue knows what there is to do: the jobs of a session, which of their steps may run, and which of their messages
// may be handed to the transport. No threads, no clock, no transport: the runner asks it, under its mutex.
//
//   free      a step is ready as soon as the steps that it waits for have run; jobs do not wait for each other
//   ordered   sends to one peer on one channel are ready in the order of the graph (each waits for the one before)
//   first     who was ready first is taken first
//   several   what weighs little is taken several at a time: the lock is taken once for all of them
//   steady    once a job is added its rounds allocate nothing
#include <span>
#include <vector>

#include "base/fifo.h"
#include "engine/job.h"

namespace tithe::engine {

struct Task {
  Job* job = nullptr;
  int step = 0;
  const Step& what() const { return job->step(step); }
};

class Queue {
 public:
  // A layout that is new to this rank, with the number that is next; its card is not written yet.
  Job& add(std::unique_ptr<Unit> unit, Card card);
  // By number; those of layouts that are gone are idle.
  std::span<const std::unique_ptr<Job>> jobs() const { return jobs_; }
  Job& job(std::size_t number) const { return *jobs_[number]; }

  // A layout that is gone: no round of it is open, and none will begin. Its number stays taken; the unit is the
  // caller's to destroy.
  std::unique_ptr<Unit> forget(Job& job);

  // A round of a job: all its steps are to come. It waits for cards, or for run() at once.
  void begin(Job& job, Instant now);
  // Its first steps are ready.
  void run(Job& job);
  // A send is with the transport: what follows it waited for that alone.
  void posted(const Task& task) { release_next(task); }
  // A step has run, or its message has come or gone. True: it was the job's last one.
  bool finished(const Task& task);

  // Takes the steps of computing that are next: one, or several that together weigh little, but no more than one lane's
  // share of what is there. Returns how many of `out` were filled.
  std::size_t take(std::span<Task> out, int lanes);
  Fifo<Task>& post() { return post_; }    // sends and receives
  Fifo<Job*>& cards() { return cards_; }  // jobs whose card is to be shown
  bool has_mail() const { return !post_.empty() || !cards_.empty(); }
  // Steps of computing that came since it was asked.
  std::size_t take_fresh() { return std::exchange(fresh_, 0); }

  int active() const { return active_; }  // jobs that are neither idle nor done
  void drop();                            // nothing that has not begun will

 private:
  void enqueue(const Task& task);
  void release_next(const Task& task);
  void end(Job& job);

  std::vector<std::unique_ptr<Job>> jobs_;
  Fifo<Task> compute_, post_;
  Fifo<Job*> cards_;
  std::size_t capacity_ = 0;  // steps of all jobs
  std::size_t fresh_ = 0;
  int active_ = 0;
};

}  // namespace tithe::engine
