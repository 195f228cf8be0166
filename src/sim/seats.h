// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inside sim/world.h: the ranks of a world, their lanes, and the messages between them.
#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "engine/queue.h"
#include "sim/cores.h"
#include "sim/world.h"

namespace tithe::sim {

using engine::Job;
using engine::Program;
using engine::StepKind;
using engine::Task;

inline constexpr std::size_t kMostTaken = 32;  // steps that a compute lane takes at once (engine/runner.cc)

// The world while it runs. world.cc sets it up and moves its clock; seats.cc is what ranks do, and their messages.
class World {
 public:
  World(const Cluster& cluster, const Costs& costs, const Workload& work, bool events, bool one)
      : cluster_(cluster),
        costs_(costs),
        work_(work),
        events_(events),
        one_(one),
        flows_(rates(cluster, one), cluster.mutual()),
        ranks_(one ? 1 : static_cast<std::size_t>(cluster.world())) {
    const int of_host = cluster.hosts()[0].ranks;
    const bool shared = cluster.machine_cores().size() == 1;
    if (one)
      cores_.emplace_back(cluster.machine_cores()[0], shared ? cluster.world() : of_host);
    else
      for (const int cores : cluster.machine_cores()) cores_.emplace_back(cores, 1, costs.slice, costs.move);
  }

  Result<Outcome> run();

 private:
  // Links, where one rank stands for all.
  static constexpr int kUp = 0, kDown = 1, kInside = 2;
  static std::vector<double> rates(const Cluster& cluster, bool one) {
    if (!one) return {cluster.rates().begin(), cluster.rates().end()};
    std::vector<double> own;  // what is this rank's of its host's links, if all of the host send
    for (const int l : {kUp, kDown, kInside})
      own.push_back(cluster.rates()[static_cast<std::size_t>(l)] / cluster.hosts()[0].ranks);
    return own;
  }

  struct Lane {
    std::vector<Task> taken;
    std::vector<Seconds> each;
    Seconds began = 0;
    bool busy = false;
  };
  struct Template {
    Program program;
    Priced price;
  };
  struct Seat {
    std::deque<Template> programs;
    std::vector<const Template*> of_job;
    engine::Queue queue;
    std::vector<Lane> lanes;    // of computing
    std::vector<Task> posting;  // that the communication lane hands over now
    std::deque<Task> come;      // messages that it has not looked at yet
    std::vector<Task> completing;
    bool busy = false;                    // the communication lane
    std::vector<std::size_t> jobs_until;  // by bucket
    std::size_t handed_over = 0;          // buckets
    Seconds over = 0;                     // when its work for the round was complete
    bool done = false;
    double bytes = 0;
    Seconds computed = 0, encoded = 0, merged = 0;
  };
  struct Pair;
  struct Message {
    Rank from = 0, to = 0;  // that are simulated
    Pair* pair = nullptr;
    Task send, recv;
    double bytes = 0;
    bool granted = false;  // may leave
    bool matched = false;  // recv is known
    bool arrived = false;
    int parts_left = 0;  // of: the flow, the sender's kernel, the receiver's
    Seconds posted = 0;
  };
  struct Meeting {  // sends and receives of one channel, from one rank to another, that have not met
    std::deque<std::uint32_t> sent;
    std::deque<Task> posted;
  };
  struct Pair {  // from one rank to another
    std::deque<std::uint32_t> waiting;
    bool busy = false;
    bool known = false;
    int route = 0;
    Seconds latency = 0;
  };
  enum class What : std::uint8_t { kBucket, kGrant, kArrive };
  struct Timer {
    Seconds at;
    std::uint64_t order;
    What what;
    std::uint32_t number;  // rank, or message
    bool operator>(const Timer& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };
  // Whose work on a core is over: a lane's, a kernel's for a message, or the caller's, who hands a bucket over.
  enum class Whose : std::uint64_t { kLane, kMessage, kCaller };
  static std::uint64_t tag(Whose whose, std::uint64_t number, std::uint64_t lane = 0) {
    return static_cast<std::uint64_t>(whose) << 60 | lane << 40 | number;
  }

  Seat& at(Rank r) { return ranks_[static_cast<std::size_t>(r)]; }
  Cores& cores_of(Rank r) {
    return cores_[static_cast<std::size_t>(
        cluster_.hosts()[static_cast<std::size_t>(cluster_.host_of(r))].machine)];
  }
  // Of a send to `to`.
  Pair& pair(Rank from, Rank to) {
    Pair& p = pairs_[static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)];
    if (!p.known) {
      p.known = true;
      p.latency = cluster_.way(from, to, links_);
      // Where one rank stands for all, what others send to it goes down where it sends up.
      if (one_ && links_.size() == 1) links_ = {kInside};
      if (one_ && links_.size() > 1) links_ = {kUp, kDown};
      p.route = flows_.route(links_);
      const auto back = pairs_.find(static_cast<std::uint64_t>(to) << 32 | static_cast<std::uint32_t>(from));
      if (!one_ && back != pairs_.end() && back->second.known) flows_.oppose(p.route, back->second.route);
    }
    return p;
  }
  // Who sends to `to` what `from` is waited for there: where one rank stands for all, it itself does, to another one.
  std::pair<Rank, Rank> sender(Rank from, Rank to) const {
    if (!one_) return {from, to};
    return {0, (cluster_.world() - from) % cluster_.world()};
  }
  Rank seat(Rank r) const { return one_ ? 0 : r; }
  Meeting& meeting(std::pair<Rank, Rank> way, const Task& task) {
    return meetings_[{way.first, way.second, task.job->number, task.what().part}];
  }
  void later(Seconds at, What what, std::uint32_t number) { timers_.push({at, order_++, what, number}); }

  Status build();
  bool step_clock();
  void hand_over(Rank r);
  void wake(Rank r, bool asleep);
  void lane_done(Rank r, std::size_t lane);
  void communicate(Rank r, bool asleep);
  void communicated(Rank r);
  void post(Rank r, const Task& task);
  void grant(std::uint32_t number);
  void next_message(Pair& p);
  void part_done(std::uint32_t number);
  void arrive(std::uint32_t number);
  void finish(Rank r, const Task& task);
  void note(Rank r, const Task& task, int lane, Seconds begin, Seconds end);
  void look_if_done(Rank r);

  const Cluster& cluster_;
  const Costs& costs_;
  const Workload& work_;
  const bool events_, one_;
  Flows flows_;
  std::vector<Cores> cores_;
  std::vector<Seat> ranks_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::map<std::tuple<Rank, Rank, std::uint32_t, int>, Meeting> meetings_;
  std::vector<Message> messages_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<int> links_;  // of a way that is asked for
  std::uint64_t order_ = 0;
  Seconds now_ = 0;
  std::size_t left_ = 0;  // ranks whose work is not complete
  Outcome out_;
};

}  // namespace tithe::sim
