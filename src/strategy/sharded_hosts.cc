// SPDX-License-Identifier: Apache-2.0
// Reduce-scatters and all-gathers on H hosts, in which each byte crosses between two hosts once. On every other host,
// one rank is the carrier of an owner's chunk: the rank whose index in its host is the owner's index in its own host
// (modulo the number of ranks).
//
// reduce-scatter   The ranks of a host send their values to the carrier of a chunk, by the codec inside. The carrier
//                  sums them and sends the owner one frame by the codec between hosts. The owner stores H frames in the
//                  order of hosts, including its own host's.
// all-gather       The owner sends its frame to the ranks of its own host, and to the carrier on each other host. The
//                  carriers forward it to the other ranks of their hosts.
//
//   steps            2
//   roundings        2 and 1 (1 and 1 if the codec inside is lossless)
#include "strategy/sharded.h"
#include "strategy/strategies.h"

namespace tithe {
namespace {

class Carriers {
 public:
  explicit Carriers(const Place& at)
      : at_(at), hosts_(at.ranks_by_host()), place_(static_cast<std::size_t>(at.world)) {
    for (const std::vector<Rank>& ranks : hosts_)
      for (std::size_t k = 0; k < ranks.size(); ++k) place_[static_cast<std::size_t>(ranks[k])] = k;
  }

  int hosts() const { return static_cast<int>(hosts_.size()); }
  const std::vector<Rank>& ranks(int host) const { return hosts_[static_cast<std::size_t>(host)]; }
  // On the owner's own host, the owner itself.
  Rank carrier(int host, Rank owner) const {
    const std::vector<Rank>& all = ranks(host);
    return all[place_[static_cast<std::size_t>(owner)] % all.size()];
  }
  // The owners whose chunks `rank` carries, beginning with the next rank.
  std::vector<Rank> carried_by(Rank rank) const {
    std::vector<Rank> out;
    for (int i = 1; i <= at_.world; ++i)
      if (const Rank owner = at_.wrap(rank + i); carrier(at_.host_of(rank), owner) == rank)
        out.push_back(owner);
    return out;
  }
  // The other ranks of the host of `rank`, beginning with the next one.
  std::vector<Rank> local_peers(Rank rank) const {
    std::vector<Rank> out;
    for (int i = 1; i < at_.world; ++i)
      if (const Rank other = at_.wrap(rank + i); at_.host_of(other) == at_.host_of(rank))
        out.push_back(other);
    return out;
  }

 private:
  const Place at_;
  const std::vector<std::vector<Rank>> hosts_;
  std::vector<std::size_t> place_;  // by rank: index among the ranks of its host
};

Graph draw_scatter(const Place& p) {
  Graph g(p.world);
  const Carriers carriers(p);
  const std::vector<Rank> local_peers = carriers.local_peers(p.me);
  const std::vector<Rank> mine = carriers.carried_by(p.me);
  const int host = p.host_of(p.me);

  for (const Rank other : local_peers)
    for (const Chunk c : carriers.carried_by(other)) g.send(other, g.encode(c, Stage::kInside));
  for (const Chunk c : mine) {
    std::vector<Graph::Frame> values;
    for (const Rank r : carriers.ranks(host))
      if (r != p.me) values.push_back(g.recv(r, c, Stage::kInside));
    g.merge(c, values);
  }

  for (const Rank owner : mine)
    if (p.host_of(owner) != host) g.send(owner, g.encode(owner));
  std::vector<Graph::Frame> sums;
  for (int h = 0; h < carriers.hosts(); ++h)
    sums.push_back(h == host ? g.encode(p.me) : g.recv(carriers.carrier(h, p.me), p.me));
  g.store(p.me, sums);
  return g;
}

// A rank sends another rank its own frame first, then the frames that it carries, in the order of carried_by().
Graph draw_gather(const Place& p) {
  Graph g(p.world);
  const Carriers carriers(p);
  const std::vector<Rank> local_peers = carriers.local_peers(p.me);
  const int host = p.host_of(p.me);

  const Graph::Frame own = g.encode(p.me);
  for (int h = 0; h < carriers.hosts(); ++h)
    if (h != host) g.send(carriers.carrier(h, p.me), own);
  for (const Rank other : local_peers) g.send(other, own);
  g.store(p.me, own);

  for (const Rank owner : carriers.carried_by(p.me)) {
    if (p.host_of(owner) == host) continue;
    const Graph::Frame f = g.recv(owner, owner);
    for (const Rank other : local_peers) g.send(other, f);
    g.store(owner, f);
  }
  for (const Rank other : local_peers) {
    g.store(other, g.recv(other, other));
    for (const Rank owner : carriers.carried_by(other))
      if (p.host_of(owner) != host) g.store(owner, g.recv(other, owner));
  }
  return g;
}

StrategyCost count(const Place& p, bool scatters) {
  const Carriers carriers(p);
  StrategyCost cost{.steps = p.world > 1 ? 2 : 0,
                    .frames_sent = 0,
                    .encodes = scatters ? p.world : 1,
                    .wire_shares = 0,
                    .concat_shares = 0,
                    .senders = carriers.hosts() - 1,
                    .roundings = scatters ? 2 : 1};
  for (Rank r = 0; r < p.world; ++r) {
    const auto local_peers = static_cast<int>(carriers.local_peers(r).size());
    int foreign = 0;  // chunks of other hosts' owners that it carries
    for (const Rank owner : carriers.carried_by(r)) foreign += p.host_of(owner) != p.host_of(r) ? 1 : 0;
    const int inside = scatters ? (local_peers > 0 ? p.world - 1 - foreign : 0) : local_peers * (1 + foreign);
    const int crossing = scatters ? foreign : carriers.hosts() - 1;
    cost.frames_sent = std::max(cost.frames_sent, inside + crossing);
    cost.wire_shares = std::max(cost.wire_shares, 1.0 * crossing / p.world);
    double& within = scatters ? cost.inside_shares : cost.result_shares;
    within = std::max(within, 1.0 * inside / p.world);
  }
  cost.concat_shares = cost.wire_shares;
  cost.concat_result_shares = cost.result_shares;
  cost.link_shares = cost.concat_link_shares = busiest_host(p, [&](const std::vector<Rank>& ranks) {
    return (scatters ? elsewhere(p, ranks) : static_cast<double>(ranks.size() * (carriers.hosts() - 1))) /
           p.world;
  });
  return cost;
}

StrategyCost scatter_cost(const Place& p) { return count(p, true); }
StrategyCost gather_cost(const Place& p) { return count(p, false); }

}  // namespace

const Strategy hosts_scatter_strategy = {.name = "hosts",
                                         .doc = "each host sums a chunk, then sends its owner one frame",
                                         .draw = draw_scatter,
                                         .chunks = chunk_per_rank,
                                         .cost = scatter_cost,
                                         .laws = kInOnePass,
                                         .kind = RoundKind::kReduceScatter,
                                         .sums_on_the_way = true};
const Strategy hosts_gather_owned_strategy = {.name = "hosts",
                                              .doc = "each host receives a chunk once and forwards it inside",
                                              .draw = draw_gather,
                                              .chunks = chunk_per_rank,
                                              .cost = gather_cost,
                                              .laws = kInOnePass,
                                              .kind = RoundKind::kAllGather};

}  // namespace tithe
