// SPDX-License-Identifier: Apache-2.0
// All flows of a route have one rate, so Route::sent grows equally for all of them; a flow ends when `sent` reaches its
// `until`. Rates are recomputed only when a flow starts or ends.
#include "advisor/sim/flows.h"

#include <algorithm>

#include "tithe/status.h"

namespace tithe::sim {
namespace {

// Tolerance for the rounding error of a finished flow: relative, and in bytes.
constexpr double kRounding = 1e-12, kNothing = 1e-6;
bool over(double until, double sent) { return until - sent <= kNothing + until * kRounding; }

}  // namespace

Flows::Flows(std::vector<double> bytes_per_second, double mutual)
    : capacity_(std::move(bytes_per_second)),
      carried_(capacity_.size()),
      many_to_one_(capacity_.size(), 1.0),
      limits_any_flows_(capacity_.size()),
      mutual_(mutual),
      links_(capacity_.size()) {
  TITHE_ASSERT(mutual > 0 && mutual <= 1);
  for ([[maybe_unused]] const double c : capacity_) TITHE_ASSERT(c > 0);
}

int Flows::route(std::span<const int> links) {
  routes_.emplace_back();
  routes_.back().links.assign(links.begin(), links.end());
  return static_cast<int>(routes_.size()) - 1;
}

void Flows::oppose(int route, int other) {
  routes_[static_cast<std::size_t>(route)].opposite = other;
  routes_[static_cast<std::size_t>(other)].opposite = route;
}

void Flows::limit_many_to_one(int link, double share, bool any) {
  TITHE_ASSERT(share > 0 && share <= 1);
  many_to_one_[static_cast<std::size_t>(link)] = share;
  limits_any_flows_[static_cast<std::size_t>(link)] = any;
}

void Flows::start(int route, double bytes, std::uint64_t tag, Seconds now) {
  TITHE_ASSERT(bytes >= 0);
  move(now);
  Route& r = routes_[static_cast<std::size_t>(route)];
  if (!r.listed) {
    r.listed = true;
    r.sent = 0;  // keeps sums small and exact
    busy_.insert(std::lower_bound(busy_.begin(), busy_.end(), route), route);
  }
  r.flows.push({r.sent + (r.links.empty() ? 0 : bytes), order_++, tag});
  ++active_;
  shared_ = false;
}

Seconds Flows::next_end() {
  share();
  return end_;
}

std::span<const std::uint64_t> Flows::advance(Seconds now) {
  share();
  TITHE_ASSERT(now <= end_);
  const bool at_end = now >= end_;
  move(now);
  ended_.clear();
  for (const int b : busy_) {
    Route& r = routes_[static_cast<std::size_t>(b)];
    // If the clock has reached the computed end, the next flow ends in spite of rounding.
    const double reach = at_end ? r.sent + r.rate * now * kRounding : r.sent;
    while (!r.flows.empty() && over(r.flows.top().until, reach)) {
      ended_.push_back(r.flows.top().tag);
      r.flows.pop();
      --active_;
    }
    if (r.flows.empty()) r.listed = false;
  }
  if (!ended_.empty()) {
    shared_ = false;
    std::erase_if(busy_, [&](int b) { return !routes_[static_cast<std::size_t>(b)].listed; });
  }
  return ended_;
}

void Flows::move(Seconds now) {
  TITHE_ASSERT(now >= now_);
  if (now <= now_) return;
  share();
  const double passed = now - now_;
  now_ = now;
  for (const int b : busy_) {
    Route& r = routes_[static_cast<std::size_t>(b)];
    const double each = r.rate * passed;
    r.sent += each;
    for (const int l : r.links)
      carried_[static_cast<std::size_t>(l)] += each * static_cast<double>(r.flows.size());
  }
}

// Progressive filling: the link with the smallest fair share fixes the rate of its flows; then the same with the
// remaining flows and rates.
void Flows::share() {
  if (shared_) return;
  shared_ = true;
  used_.clear();
  std::size_t open = 0;
  for (const int b : busy_) {
    Route& r = routes_[static_cast<std::size_t>(b)];
    r.fixed = r.links.empty();
    r.rate = 0;
    if (r.fixed) continue;
    ++open;
    const bool meets = r.opposite >= 0 && routes_[static_cast<std::size_t>(r.opposite)].listed;
    for (const int l : r.links) {
      Link& link = links_[static_cast<std::size_t>(l)];
      if (link.open == 0) {
        link.left = capacity_[static_cast<std::size_t>(l)];
        used_.push_back(l);
      }
      link.open += static_cast<double>(r.flows.size());
      const bool other = link.first != -1 && link.first != r.links.front();
      link.first = other ? kSeveral : r.links.front();
      if (meets) link.meet += static_cast<double>(r.flows.size());
    }
  }
  for (const int l : used_) {
    Link& link = links_[static_cast<std::size_t>(l)];
    link.left *= 1 - (1 - mutual_) * link.meet / link.open;
    const bool several = link.first == kSeveral || limits_any_flows_[static_cast<std::size_t>(l)] != 0;
    if (link.open > 1 && several) link.left *= many_to_one_[static_cast<std::size_t>(l)];
  }
  while (open > 0) {
    double least = kNever;
    for (const int l : used_) {
      const Link& link = links_[static_cast<std::size_t>(l)];
      if (link.open > 0) least = std::min(least, link.left / link.open);
    }
    // All routes over a link with this share get it; several links may have the same share.
    const double reach = least * (1 + kRounding);
    const auto meets = [&](const Route& r) {
      return std::any_of(r.links.begin(), r.links.end(), [&](int l) {
        const Link& link = links_[static_cast<std::size_t>(l)];
        return link.left / link.open <= reach;
      });
    };
    for (const int b : busy_) {
      Route& r = routes_[static_cast<std::size_t>(b)];
      if (r.fixed || !meets(r)) continue;
      r.fixed = true;
      r.rate = least;
      --open;
      const auto flows = static_cast<double>(r.flows.size());
      for (const int l : r.links) {
        Link& link = links_[static_cast<std::size_t>(l)];
        link.left = std::max(0.0, link.left - least * flows);
        link.open -= flows;
      }
    }
  }
  for (const int l : used_) links_[static_cast<std::size_t>(l)] = {};
  end_ = kNever;
  for (const int b : busy_) {
    const Route& r = routes_[static_cast<std::size_t>(b)];
    const double left = r.flows.top().until - r.sent;
    end_ = std::min(end_, r.links.empty() || left <= kNothing ? now_ : now_ + left / r.rate);
  }
}

}  // namespace tithe::sim
