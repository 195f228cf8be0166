// SPDX-License-Identifier: Apache-2.0
#pragma once
// The queue knows what there is to do: the jobs of a session, which of their steps may run, and which of their messages
// may be handed to the transport. No threads, no clock, no transport: the runner asks it, under its mutex.
//
//   free      a step is ready as soon as its part has begun and the steps that it waits for have run; jobs do not wait
//             for each other
//   ordered   sends to one peer on one channel are ready in the order of the graph (each waits for the one before)
//   first     ready.h says which step is taken first, not the order in which they became ready
//   several   steps that weigh little are taken several at a time: the lock is taken once for all of them
//   steady    once a job is added its rounds allocate nothing
#include <span>
#include <vector>

#include "base/fifo.h"
#include "engine/run/ready.h"

namespace tithe::engine {

class Queue {
  static constexpr std::size_t kLight = 16384;  // values

 public:
  // A layout that is new to this rank, with the number that is next; its card is not written yet.
  Job& add(std::unique_ptr<Unit> unit, Card card);
  // Steps that nobody runs: a simulator asks what would be next. `program` outlives the queue.
  Job& add(const Program& program);
  // By number; those of layouts that are gone are idle.
  std::span<const std::unique_ptr<Job>> jobs() const { return jobs_; }
  Job& job(std::size_t number) const { return *jobs_[number]; }

  // Its card is to be shown.
  void show(Job& job);

  // A layout that is gone: no round of it is open, and none will begin. Its number stays taken; the unit is the
  // caller's to destroy.
  std::unique_ptr<Unit> forget(Job& job);

  // Steps that become ready from now on are ready since then.
  void at(std::int64_t now_ns) { now_ns_ = now_ns; }

  // A round of a job: all its steps are to come. It waits for cards, or for run() at once.
  void begin(Job& job, Instant now);
  // Its first steps are ready.
  void run(Job& job);
  // A send is with the transport: what follows it waited for that alone, but for receives, which have its memory.
  void posted(const Task& task) { release_next(task, false); }
  // A step has run, or its message has come or gone. True: it was the job's last one.
  bool finished(const Task& task);

  // Takes the steps of computing that are next: one, or several that together weigh little, but no more than one lane's
  // share of what is there. Returns how many of `out` were filled.
  std::size_t take(std::span<Task> out, int lanes);
  Ready& post() { return post_; }         // sends and receives
  Fifo<Job*>& cards() { return cards_; }  // jobs whose card is to be shown
  bool has_mail() const { return !post_.empty() || !cards_.empty(); }
  // There are steps of computing that could run now, and together they weigh so little that the communication lane
  // runs them itself: that takes less than to wake another thread and to be woken by it.
  bool light() const { return compute_.size() > 0 && weight_ <= kLight; }
  // Steps of computing that came since it was asked.
  std::size_t take_fresh() { return std::exchange(fresh_, 0); }

  int active() const { return active_; }  // jobs that are neither idle nor done
  void drop();                            // nothing that has not begun will

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
  std::size_t begun_ = 0;  // since no job was active
  int active_ = 0;
  std::int64_t now_ns_ = 0;
};

}  // namespace tithe::engine
