// SPDX-License-Identifier: Apache-2.0
// Links are numbered: up, down and inside for each host, then up and down for each switch. build() derives hosts, ranks
// and link rates from the file's groups of hosts and switches.
#include "advisor/sim/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/lanes.h"

namespace tithe::sim {
namespace {

constexpr int kPerHost = 3;  // links: up, down, inside

}  // namespace

Cluster Cluster::flat(int hosts, double bytes_per_second, Seconds latency, int cores, bool shared) {
  return flat(hosts, {1, bytes_per_second, latency}, bytes_per_second, latency, cores, shared);
}

Cluster Cluster::flat(int hosts, const Inside& inside, double bytes_per_second, Seconds latency, int cores,
                      bool shared) {
  Cluster c;
  c.shared_cores_ = shared ? cores : 0;
  c.name_ = "flat";
  c.switches_.push_back({});
  c.kinds_.push_back({.count = hosts,
                      .ranks = inside.ranks,
                      .cores = cores,
                      .rate = bytes_per_second,
                      .inside_rate = inside.bytes_per_second,
                      .latency = latency,
                      .inside_latency = inside.latency});
  c.build(std::numeric_limits<int>::max());
  return c;
}

Cluster Cluster::with_name(std::string name) const {
  Cluster other = *this;
  other.name_ = std::move(name);
  return other;
}

// Lays out hosts in the order of the file until there are `max_ranks` ranks.
void Cluster::build(int max_ranks) {
  hosts_.clear();
  kind_of_.clear();
  host_of_.clear();
  machine_cores_.clear();
  rates_.clear();
  world_ = 0;
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    const Kind& kind = kinds_[k];
    for (int i = 0; i < kind.count && world_ < max_ranks; ++i) {
      Host host;
      host.ranks = std::min(kind.ranks, max_ranks - world_);
      host.first_rank = world_;
      host.machine = shared_cores_ > 0 ? 0 : static_cast<int>(hosts_.size());
      if (static_cast<std::size_t>(host.machine) == machine_cores_.size())
        machine_cores_.push_back(shared_cores_ > 0 ? shared_cores_ : kind.cores);
      host_of_.insert(host_of_.end(), static_cast<std::size_t>(host.ranks), static_cast<int>(hosts_.size()));
      world_ += host.ranks;
      hosts_.push_back(host);
      kind_of_.push_back(static_cast<int>(k));
      rates_.insert(rates_.end(), {kind.rate, kind.rate, kind.inside_rate});
    }
  }
  shared_ = {};
  if (world_ > static_cast<int>(hosts_.size())) {
    const std::vector<std::uint64_t> numbers(host_of_.begin(), host_of_.end());
    shared_ = tithe::Hosts::of(numbers);
  }
  for (const Switch& s : switches_) {
    // The top switch has no switch above it, so its links are never used.
    const double rate = s.up < 0 ? 1 : s.rate;
    rates_.insert(rates_.end(), {rate, rate});
  }
}

Cluster Cluster::with_rate(double bytes_per_second) const {
  Cluster c = *this;
  const double factor = bytes_per_second / kinds_[0].rate;
  for (Kind& k : c.kinds_) k.rate *= factor;
  for (Switch& s : c.switches_) s.rate *= factor;
  c.build(world_);
  return c;
}

Cluster Cluster::on_devices() const {
  Cluster c = *this;
  for (Kind& k : c.kinds_) {
    if (k.device.inside_rate > 0) k.inside_rate = k.device.inside_rate;
    k.device = {};
  }
  c.build(world_);
  return c;
}

Cluster Cluster::with_latency(double factor) const {
  Cluster c = *this;
  for (Kind& k : c.kinds_) {
    k.latency *= factor;
    k.inside_latency *= factor;
  }
  for (Switch& s : c.switches_) s.latency *= factor;
  return c;
}

Cluster Cluster::with_cores(int factor) const {
  Cluster c = *this;
  c.shared_cores_ *= factor;
  for (Kind& k : c.kinds_) k.cores *= factor;
  c.build(world_);
  return c;
}

Result<Cluster> Cluster::sized(int ranks) const {
  if (ranks < 1) return Status(Code::kInvalid, fmt::format("{} ranks: at least one is needed", ranks));
  Cluster c = *this;
  const auto per_cycle = [&] {
    long long sum = 0;
    for (const Kind& k : c.kinds_) sum += static_cast<long long>(k.count) * k.ranks;
    return sum;
  };
  // If the file has too few ranks, its hosts are repeated.
  const long long turns = (ranks + per_cycle() - 1) / per_cycle();
  for (Kind& k : c.kinds_) k.count = static_cast<int>(k.count * turns);
  c.build(ranks);
  return c;
}

int Cluster::lanes(Rank r, int requested) const {
  if (requested > 0) return requested;
  if (!codecs_.empty()) return 1;
  const Host& host = hosts_[static_cast<std::size_t>(host_of(r))];
  return default_lanes(machine_cores_[static_cast<std::size_t>(host.machine)],
                       shared_cores_ > 0 ? world_ : host.ranks);
}

Seconds Cluster::compute(std::string_view model) const {
  const auto found = compute_.find(model);
  return found == compute_.end() ? 0 : found->second;
}

Costs Cluster::costs(Costs others) const {
  for (const auto& [number, seconds] : numbers_) others.*number = seconds;
  // A size alone means the rendezvous protocol: messages up to this size are sent without asking.
  if (eager_bytes_) others.long_messages = {SendProtocol::kRendezvous, *eager_bytes_};
  if (many_to_one_) others.many_to_one = *many_to_one_;
  if (protocol_) others.long_messages.protocol = *protocol_;
  if (const auto any = codecs_.find("*"); any != codecs_.end())
    for (auto& [name, costs] : others.codecs) costs = any->second;
  for (const auto& [name, costs] : codecs_)
    if (name != "*") others.codecs[name] = costs;
  return others;
}

std::string Cluster::link_name(int link) const {
  constexpr std::string_view kOfHost[] = {"up", "down", "inside"};
  const int host_links = kPerHost * static_cast<int>(hosts_.size());
  if (link < host_links)
    return fmt::format("host {} {}", link / kPerHost, kOfHost[static_cast<std::size_t>(link % kPerHost)]);
  return fmt::format("switch {} {}", (link - host_links) / 2, (link - host_links) % 2 == 0 ? "up" : "down");
}

std::string Cluster::link_text(const Costs& costs) const {
  if (hosts_.size() < 2 || switches_.size() > 1) return {};
  double rate = std::numeric_limits<double>::infinity(), inside_rate = rate;
  Seconds latency = 0, inside_latency = 0;
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    const Kind& kind = kinds_[static_cast<std::size_t>(kind_of_[h])];
    rate = std::min(rate, kind.rate);
    inside_rate = std::min(inside_rate, kind.inside_rate);
    inside_latency = std::max(inside_latency, kind.inside_latency);
    latency += kind.latency / static_cast<double>(hosts_.size());
  }
  constexpr Seconds kMinFrame = 1e-9;
  const Seconds work = costs.post + costs.complete + costs.turn + costs.wake;
  const Seconds frame = std::max(kMinFrame, latency + work);
  std::string text = fmt::format("{:.6f}kB/s+{:.3f}us", rate / 1e3, frame * 1e6);
  if (!shared_.alone())
    text += fmt::format(", inside {:.6f}kB/s+{:.3f}us", inside_rate / 1e3, (inside_latency + work) * 1e6);
  return text;
}

// Climbs from both hosts to their common switch.
Seconds Cluster::route(Rank from, Rank to, std::vector<int>& links) const {
  links.clear();
  const int a = host_of(from), b = host_of(to);
  const Kind& of_a = kinds_[static_cast<std::size_t>(kind_of_[static_cast<std::size_t>(a)])];
  if (a == b) {
    links.push_back(kPerHost * a + 2);
    return of_a.inside_latency;
  }
  const Kind& of_b = kinds_[static_cast<std::size_t>(kind_of_[static_cast<std::size_t>(b)])];
  const int first_switch = kPerHost * static_cast<int>(hosts_.size());
  Seconds latency = (of_a.latency + of_b.latency) / 2;
  links.push_back(kPerHost * a);
  const auto depth = [&](int s) {
    int d = 0;
    for (; switches_[static_cast<std::size_t>(s)].up >= 0; s = switches_[static_cast<std::size_t>(s)].up) ++d;
    return d;
  };
  int x = of_a.at, y = of_b.at;
  std::vector<int> down;
  const auto climb = [&](int& s, int direction) {
    const Switch& at = switches_[static_cast<std::size_t>(s)];
    (direction == 0 ? links : down).push_back(first_switch + 2 * s + direction);
    latency += at.latency;
    s = at.up;
  };
  for (int d = depth(x) - depth(y); d > 0; --d) climb(x, 0);
  for (int d = depth(y) - depth(x); d > 0; --d) climb(y, 1);
  while (x != y) {
    climb(x, 0);
    climb(y, 1);
  }
  links.insert(links.end(), down.rbegin(), down.rend());
  links.push_back(kPerHost * b + 1);
  return latency;
}

}  // namespace tithe::sim
