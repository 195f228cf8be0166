// SPDX-License-Identifier: Apache-2.0
#pragma once
// Part of advisor/sim/world.h: the simulated ranks of a world, their lanes, and the messages between them.
#include <array>
#include <deque>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "advisor/sim/classes.h"
#include "advisor/sim/cores.h"
#include "advisor/sim/forecast.h"
#include "advisor/sim/step_timeline.h"
#include "advisor/sim/world.h"
#include "engine/run/queue.h"

namespace tithe::sim {

using engine::Job;
using engine::StepKind;
using engine::Task;

// The maximum number of steps that a compute lane takes at once (engine/run/runner.cc).
inline constexpr std::size_t kMaxTaken = 64;

// A running world. world.cc sets it up and advances its clock; rank_model.cc has the ranks' steps and messages.
class World {
 public:
  World(const Cluster& cluster, const Costs& costs, const Workload& work, bool events, const Classes& classes,
        TimelineBuilder& timelines);
  Result<Outcome> run(Seconds limit);

 private:
  struct Lane {
    std::array<Task, kMaxTaken> taken{};
    std::array<Seconds, kMaxTaken> each{};
    std::size_t count = 0;  // steps in `taken`
    Seconds began = 0;
    bool busy() const { return count > 0; }
  };
  // The jobs of a bucket: numbers of jobs begun and finished, in order.
  struct BucketJobs {
    std::size_t begun = 0, finished = 0;
    bool copying_back = false;  // its results are being copied to the device
  };
  struct RankModel {
    engine::Queue queue;
    std::vector<Lane> lanes;    // compute lanes
    Lane light;                 // steps that the communication lane runs itself
    std::vector<Task> posting;  // messages that the communication lane posts now
    std::deque<Task> arrivals;  // completions that it has not processed yet
    std::vector<Task> completing;
    bool busy = false;              // the communication lane is busy
    std::size_t handed_over = 0;    // number of buckets that the program has handed over
    std::vector<BucketJobs> begun;  // by bucket
    std::vector<bool> ended;        // by job
    std::size_t filled = 0;         // number of buckets whose gradients the device has computed
    std::size_t copied_back = 0;    // number of buckets whose results are on the device
    Seconds copying = 0;            // end of the last copy that its device has queued
    Seconds finished = 0;           // time at which its work for the round was complete
    bool done = false;
    double bytes = 0;
    Seconds computed = 0, encoded = 0, merged = 0;
    Seconds handled = 0;  // total time of messages on the communication lane
  };
  // A part of a bucket: one job with the same number on each simulated rank.
  struct PartRun {
    std::shared_ptr<const StepTimeline> timeline;
    int bucket = 0, part = 0;
    std::size_t after = 0;  // number of leading jobs of the bucket that must end before it begins
    // By simulated rank and sending step: kNone, kAwaited, or the index of its message.
    std::vector<std::vector<std::uint32_t>> messages = {};
    // Likewise: the time at which the receive was posted, if messages wait for it (SendProtocol::kPosted).
    std::vector<std::vector<Seconds>> posted = {};
    std::size_t left = 0;  // simulated ranks that have not finished it
  };
  static constexpr std::uint32_t kNone = 0xffffffff, kAwaited = kNone - 1;
  struct Message {
    Rank from = 0, to = 0;       // simulated ranks
    std::uint32_t pair = 0;      // index in pairs_
    std::uint32_t next = kNone;  // the next waiting message of its pair, or the next free one
    Task send, recv;
    double bytes = 0;
    bool granted = false;  // may be sent
    bool matched = false;  // its receive is posted
    bool arrived = false;
    int parts_left = 0;  // unfinished: the flow, the sender's kernel, the receiver's kernel
    Seconds posted = 0;
  };
  // A sender and a receiver; their messages travel one after the other.
  struct Pair {
    std::uint32_t first = kNone, last = kNone;  // waiting messages
    bool busy = false;
    int route = 0;
    Seconds latency = 0;
    Seconds of_byte = kNever;  // upper bound of the core time per byte, at either end
  };
  enum class TimerKind : std::uint8_t { kFilled, kBucket, kCopiedBack, kGrant, kArrive };
  struct Timer {
    Seconds at;
    std::uint64_t order;
    TimerKind what;
    std::uint32_t number;  // simulated rank, or message
    bool operator>(const Timer& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };
  // The owner of finished core work: a lane, the kernel for a message, or the caller that submits a bucket.
  enum class WorkOwner : std::uint64_t { kLane, kMessage, kCaller };
  static std::uint64_t tag(WorkOwner owner, std::uint64_t number, std::uint64_t lane = 0) {
    return static_cast<std::uint64_t>(owner) << 60 | lane << 40 | number;
  }

  RankModel& at(Rank r) { return ranks_[static_cast<std::size_t>(r)]; }
  PartRun& run_of(const Task& task) { return runs_[task.job->number]; }
  const Role& role(Rank r, const Task& task) {
    return run_of(task).timeline->roles[static_cast<std::size_t>(r)];
  }
  Cores& cores_of(Rank r) {
    return cores_[static_cast<std::size_t>(
        cluster_.hosts()[static_cast<std::size_t>(cluster_.host_of(r))].machine)];
  }
  Pair& pair_of(const Message& m) { return pairs_[m.pair]; }
  std::uint32_t pair(Rank from, Rank to);
  std::uint32_t new_message();
  void later(Seconds at, TimerKind what, std::uint32_t number) { timers_.push({at, order_++, what, number}); }

  Status build();
  bool step_clock();
  // True if the step exceeds the limit whatever follows.
  bool too_long(const Forecast& forecast, Seconds limit) const;
  Seconds copied(Rank r, std::size_t bucket);  // the end of a copy that is queued now
  void hand_over(Rank r);
  void begin_parts(Rank r, std::size_t bucket);
  void wake(Rank r, bool asleep);
  Seconds take(Rank r, Lane& lane);  // takes steps for a lane and returns their time
  void ran(Rank r, Lane& lane, int number);
  void lane_done(Rank r, std::size_t lane);
  void communicate(Rank r, bool asleep);
  void communicated(Rank r);
  void post_recv(const Task& task, MatchedStep send);
  void post_send(Rank r, const Task& task, MatchedStep recv);
  void grant(std::uint32_t number);
  void next_message(Pair& p);
  void part_done(std::uint32_t number);
  void arrive(std::uint32_t number);
  void take(std::uint32_t number);
  void finish(Rank r, const Task& task);
  void note(Rank r, const Task& task, int lane, Seconds begin, Seconds end);
  void check_done(Rank r);

  const Cluster& cluster_;
  const Costs& costs_;
  const Workload& work_;
  const bool events_;
  const bool devices_;  // gradients are in device memory
  const Classes& classes_;
  TimelineBuilder& timelines_;
  const std::vector<double> rates_;  // of links
  Flows flows_;
  std::vector<Cores> cores_;
  std::vector<RankModel> ranks_;
  std::vector<PartRun> runs_;           // by job
  std::vector<std::size_t> first_job_;  // by bucket, plus the end
  std::vector<Pair> pairs_;
  std::unordered_map<std::uint64_t, std::uint32_t> pair_numbers_;
  std::map<std::vector<int>, int> routes_;  // by links
  std::vector<Message> messages_;
  std::uint32_t free_ = kNone;  // of messages_
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<int> links_;  // scratch for routes
  std::uint64_t order_ = 0;
  Seconds now_ = 0;
  std::size_t left_ = 0;  // simulated ranks whose work is not complete
  Outcome out_;
};

}  // namespace tithe::sim
