// SPDX-License-Identifier: Apache-2.0
// Sums the bytes and seconds of all parts, by link and by rank. Every bound is a necessary time, so the forecast never
// exceeds the true end.
#include "advisor/sim/forecast.h"

#include <algorithm>

namespace tithe::sim {

Seconds route_of(const Cluster& cluster, const Classes& classes, Rank from, Rank to,
                 std::vector<int>& links) {
  const Seconds latency = cluster.route(from, to, links);
  // If few ranks represent all, the messages that others send to them use the links on which they send.
  if (classes.simulated() < classes.world())
    links = links.size() == 1 ? std::vector{kInsideOfFew} : std::vector{kUpOfFew, kDownOfFew};
  return latency;
}

const Forecast::Load& Forecast::of(const StepTimeline& timeline) {
  const auto [at, fresh] = known_.try_emplace(&timeline);
  Load& load = at->second;
  if (!fresh) return load;
  load.bytes.resize(rates_.size());
  std::vector<int> links;
  for (std::size_t s = 0; s < timeline.roles.size(); ++s) {
    const Role& role = timeline.roles[s];
    Seconds computing = 0;
    for (const Seconds each : role.price.seconds) computing += each;
    load.computing.push_back(computing);
    load.handling.push_back(0);
    for (const engine::Step& step : role.program.steps) {
      const bool sends = step.kind == engine::StepKind::kSend;
      if (!sends && step.kind != engine::StepKind::kRecv) continue;
      load.handling.back() += costs_.post + (sends ? 0 : costs_.complete);
      if (!sends) continue;
      route_of(cluster_, classes_, static_cast<Rank>(s), step.peer, links);
      for (const int l : links)
        load.bytes[static_cast<std::size_t>(l)] += role.price.bytes[static_cast<std::size_t>(step.slot)];
    }
  }
  return load;
}

void Forecast::add(const StepTimeline& timeline, Seconds ready) {
  const Load& load = of(timeline);
  for (std::size_t l = 0; l < rates_.size(); ++l) all_.bytes[l] += load.bytes[l];
  for (std::size_t s = 0; s < load.computing.size(); ++s) {
    all_.computing[s] += load.computing[s];
    all_.handling[s] += load.handling[s];
  }
  parts_.push_back({&load, ready});
}

// Work of later buckets, at the bucket's ready time: a suffix sum over parts.
Seconds Forecast::at_start() const {
  Load behind{std::vector<double>(rates_.size()), std::vector<Seconds>(all_.computing.size()),
              std::vector<Seconds>(all_.computing.size())};
  Seconds least = 0;
  for (std::size_t p = parts_.size(); p-- > 0;) {
    const Load& load = *parts_[p].load;
    for (std::size_t l = 0; l < rates_.size(); ++l) behind.bytes[l] += load.bytes[l];
    for (std::size_t s = 0; s < behind.computing.size(); ++s) {
      behind.computing[s] += load.computing[s];
      behind.handling[s] += load.handling[s];
    }
    if (p > 0 && parts_[p - 1].ready == parts_[p].ready) continue;
    for (std::size_t l = 0; l < rates_.size(); ++l)
      least = std::max(least, parts_[p].ready + behind.bytes[l] / rates_[l]);
    for (std::size_t s = 0; s < behind.computing.size(); ++s)
      least = std::max(least, parts_[p].ready + std::max(behind.computing[s] / lanes(s), behind.handling[s]));
  }
  return least;
}

Seconds Forecast::of_link(int link, double carried, Seconds now) const {
  const auto l = static_cast<std::size_t>(link);
  return now + std::max(0.0, all_.bytes[l] - carried) / rates_[l];
}

Seconds Forecast::of_rank(Rank rank, Seconds computed, Seconds handled, Seconds now) const {
  const auto s = static_cast<std::size_t>(rank);
  return now + std::max({0.0, (all_.computing[s] - computed) / lanes(s), all_.handling[s] - handled});
}

}  // namespace tithe::sim
