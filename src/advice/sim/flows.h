// SPDX-License-Identifier: Apache-2.0
#pragma once
// Flows over links that they share fairly, on a clock that its user moves: what moves bytes in the simulator.
//
//   fair       at any moment each link is shared so that no flow can get more without one that has less losing some
//              (max-min, by progressive filling; Bertsekas and Gallager, Data Networks, 6.5.2). TCP comes close over
//              some round trips; it does not where queues are so short that they drop (docs/guide/simulate.md)
//   exact      between two changes rates are constant, so the time of the next end is computed, not stepped to
//   mutual     where a link's flows have a flow of the opposite route, it carries but a share of its rate
//   crowded    where flows of several first links meet on a link that is said to mind, it carries but a share of its
//              rate: what TCP loses where several senders come to one receiver. Flows of one sender's link wait there
//   conserved  what a link carried is the sum of what its flows sent, to rounding
//   same       the same calls in the same order give the same times on all machines: fp64, sums in the order of routes
//   cheap      flows of one route have one rate: a change costs as many routes as have flows, and not as many flows
#include <cstdint>
#include <limits>
#include <queue>
#include <span>
#include <vector>

namespace tithe::sim {

using Seconds = double;
inline constexpr Seconds kNever = std::numeric_limits<double>::infinity();

class Flows {
 public:
  // Bytes per second of each link, all positive; and what a link carries of it if all its flows meet others.
  explicit Flows(std::vector<double> bytes_per_second, double mutual = 1);

  // A way over these links, for flows to come. Over no link, bytes take no time.
  int route(std::span<const int> links);
  // Two routes that lead opposite ways.
  void oppose(int route, int other);
  // With flows of two first links or more this link carries `share` of its rate, above 0 and at most 1. `any`: with two
  // flows or more, wherever they come from: where one route stands for those of several senders.
  void crowd(int link, double share, bool any = false);
  // A flow of `bytes`, at least 0, from now on. `tag` is the caller's.
  void start(int route, double bytes, std::uint64_t tag, Seconds now);
  // When the next flow ends, if nothing else starts; kNever if there is none.
  Seconds next_end();
  // Moves to `now`, at most next_end(), and takes the tags of the flows that have ended: route by route, in each those
  // that had least left first, and of equals the one that began first. They stay until the next advance().
  std::span<const std::uint64_t> advance(Seconds now);

  std::size_t active() const { return active_; }
  double carried(int link) const { return carried_[static_cast<std::size_t>(link)]; }  // bytes until now()
  Seconds now() const { return now_; }                                                 // when they moved last

 private:
  struct Flow {
    double until;  // what each flow of its route has sent when it ends
    std::uint64_t order, tag;
    bool operator>(const Flow& o) const { return until != o.until ? until > o.until : order > o.order; }
  };
  struct Route {
    std::vector<int> links;
    std::priority_queue<Flow, std::vector<Flow>, std::greater<>> flows;
    double sent = 0;  // by a flow that began with the route's first one and never ends
    double rate = 0;  // of each of its flows
    bool fixed = false, listed = false;
    int opposite = -1;
  };
  struct Link {
    double left = 0;  // of its rate, while rates are computed
    double open = 0;  // flows whose rate is not fixed yet
    double meet = 0;  // of all, those with a flow of the opposite route
    int first = -1;   // link of a flow here; kSeveral: flows have several
  };
  void share();
  void move(Seconds now);

  static constexpr int kSeveral = -2;
  std::vector<double> capacity_, carried_, crowded_;
  std::vector<char> crowds_of_one_;  // by link: `any` of crowd()
  double mutual_;
  std::vector<Link> links_;
  std::vector<int> used_;  // links with flows, while rates are computed
  std::vector<Route> routes_;
  std::vector<int> busy_;  // routes with flows, in the order of their numbers
  std::vector<std::uint64_t> ended_;
  std::uint64_t order_ = 0;
  std::size_t active_ = 0;
  Seconds now_ = 0, end_ = kNever;
  bool shared_ = true;
};

}  // namespace tithe::sim
