// SPDX-License-Identifier: Apache-2.0
#pragma once
// Flows over links that they share fairly, on a clock that the caller advances. This model moves all bytes in the
// simulator.
//
//   - fair: rates are max-min fair at any moment, by progressive filling (Bertsekas and Gallager, Data Networks,
//     6.5.2). TCP comes close to this over some round trips, except where queues are so short that they drop packets
//     (docs/guide/simulate.md).
//   - exact: rates are constant between two changes, so the time of the next end is computed.
//   - mutual: a link whose flows have opposite flows has only a share of its rate.
//   - many to one: a link has only a share of its rate while flows of several senders meet there
//     (limit_many_to_one()), since TCP loses throughput when several senders send to one receiver. Flows of one sender
//     already queue on the sender's link.
//   - conserved: the bytes that a link carried equal the bytes that its flows sent, up to rounding.
//   - same: the same calls in the same order give the same times on all machines: fp64 sums in the order of routes.
//   - cheap: all flows of one route have one rate, so a change costs time in proportion to the busy routes, not to the
//     flows.
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
  // The rate of each link in bytes per second, all positive. `mutual`: the share of its rate that a link has if all its
  // flows have opposite flows.
  explicit Flows(std::vector<double> bytes_per_second, double mutual = 1);

  // Adds a route over these links. Over no link, bytes take no time.
  int route(std::span<const int> links);
  // Declares two routes as opposite.
  void oppose(int route, int other);
  // While flows with different first links use this link, it has `share` of its rate, above 0 and at most 1. `any`:
  // with any two flows, if one route represents those of several senders.
  void limit_many_to_one(int link, double share, bool any = false);
  // Starts a flow of `bytes`, at least 0. `tag` is the caller's.
  void start(int route, double bytes, std::uint64_t tag, Seconds now);
  // The time at which the next flow ends if no other one starts; kNever if there is none.
  Seconds next_end();
  // Advances to `now`, at most next_end(), and returns the tags of the finished flows: route by route, then by
  // remaining bytes, then by start. The span is valid until the next advance().
  std::span<const std::uint64_t> advance(Seconds now);

  std::size_t active() const { return active_; }
  double carried(int link) const { return carried_[static_cast<std::size_t>(link)]; }  // bytes until now()
  Seconds now() const { return now_; }  // time of the last advance()

 private:
  struct Flow {
    double until;  // value of Route::sent at which it ends
    std::uint64_t order, tag;
    bool operator>(const Flow& o) const { return until != o.until ? until > o.until : order > o.order; }
  };
  struct Route {
    std::vector<int> links;
    std::priority_queue<Flow, std::vector<Flow>, std::greater<>> flows;
    double sent = 0;  // bytes of each flow since the route became busy
    double rate = 0;  // of each of its flows
    bool fixed = false, listed = false;
    int opposite = -1;
  };
  struct Link {
    double left = 0;  // unassigned rate, while rates are computed
    double open = 0;  // flows whose rate is not fixed yet
    double meet = 0;  // of all flows, the number with an opposite flow
    int first = -1;   // first link of its flows; kSeveral: they differ
  };
  void share();
  void move(Seconds now);

  static constexpr int kSeveral = -2;
  std::vector<double> capacity_, carried_, many_to_one_;
  std::vector<char> limits_any_flows_;  // by link: `any` of limit_many_to_one()
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
