// SPDX-License-Identifier: Apache-2.0
// The part is cut into as many shares as the largest host has ranks. On each host, one rank is the carrier of a
// share, for all chunks of the share. So all ranks of a host use its link, and each byte crosses the link once.
#include "strategy/between.h"

#include <algorithm>
#include <numeric>

namespace tithe {
namespace {

class Shares {
 public:
  Shares(const Place& at, const Strategy& between)
      : hosts_(at.ranks_by_host()),
        count_(0),
        chunks_(between.chunks({0, static_cast<int>(hosts_.size())})),
        between_(between) {
    for (const auto& ranks : hosts_) count_ = std::max(count_, static_cast<int>(ranks.size()));
  }

  int hosts() const { return static_cast<int>(hosts_.size()); }
  int count() const { return count_; }
  int chunks() const { return chunks_; }  // per share
  Chunk chunk(int share, Chunk c) const { return share * chunks_ + c; }
  const std::vector<Rank>& ranks(int host) const { return hosts_[static_cast<std::size_t>(host)]; }
  Rank carrier(int host, int share) const {
    const std::vector<Rank>& all = ranks(host);
    return all[static_cast<std::size_t>(share) % all.size()];
  }
  std::vector<int> carried_by(int host, Rank rank) const {
    std::vector<int> out;
    for (int s = 0; s < count_; ++s)
      if (carrier(host, s) == rank) out.push_back(s);
    return out;
  }
  // The other ranks of the host, beginning with the next one, so that the ranks do not all send to the same rank
  // first.
  std::vector<Rank> others(int host, Rank me) const {
    std::vector<Rank> out = ranks(host);
    const auto mine = std::find(out.begin(), out.end(), me);
    std::rotate(out.begin(), mine, out.end());
    out.erase(out.begin());
    return out;
  }
  Graph graph(int host) const { return between_.draw({host, hosts()}); }
  // The chunks of a share in the order in which the host uses them: first the chunk that its right neighbour receives
  // first.
  std::vector<Chunk> chunks_from(int host, int share) const {
    std::vector<Chunk> out;
    for (Chunk c = 0; c < chunks_; ++c) out.push_back(chunk(share, (host + 1 + c) % chunks_));
    return out;
  }

 private:
  std::vector<std::vector<Rank>> hosts_;
  int count_;
  int chunks_;
  const Strategy& between_;
};

std::vector<Graph::Frame> frames_of(const Node& node, const std::vector<Graph::Frame>& made) {
  std::vector<Graph::Frame> out;
  for (const int f : node.frames) out.push_back(made[static_cast<std::size_t>(f)]);
  return out;
}

// The indices of a store's frames in the order of their arrival: this host's own frame, then the frames of the
// previous hosts, nearest first, because each host sends to the next host first. So no frame waits for a later one,
// and all hosts use the same order.
std::vector<std::size_t> arrival_order(const Shares& shares, const Graph& between, const Node& store,
                                       int host) {
  const auto hosts_back = [&](std::size_t frame) {
    const Node& made = between.nodes()[static_cast<std::size_t>(store.frames[frame])];
    return made.op == Op::kRecv ? (host - made.arg + shares.hosts()) % shares.hosts() : 0;
  };
  std::vector<std::size_t> out(store.frames.size());
  std::iota(out.begin(), out.end(), 0);
  std::ranges::stable_sort(out, {}, hosts_back);
  return out;
}

// Embeds the flat strategy's graph for one share, between the share's carriers. The stored frames are forwarded to
// `others` of this host.
void embed(Graph& g, const Shares& shares, int host, int share, const std::vector<Rank>& others) {
  const Graph between = shares.graph(host);
  const std::span<const Node> nodes = between.nodes();
  std::vector<Graph::Frame> made(nodes.size());
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const Node& node = nodes[k];
    const auto frames = frames_of(node, made);
    const auto chunk = [&] { return shares.chunk(share, between.chunk_of(static_cast<int>(k))); };
    switch (node.op) {
      case Op::kEncode:
        made[k] = g.encode(chunk());
        break;
      case Op::kSend:
        g.send(shares.carrier(node.arg, share), frames[0]);
        break;
      case Op::kRecv:
        made[k] = g.recv(shares.carrier(node.arg, share), chunk());
        break;
      case Op::kMerge:
        g.merge(chunk(), frames);
        break;
      case Op::kStore:
        for (const std::size_t f : arrival_order(shares, between, node, host))
          for (const Rank other : others) g.send(other, frames[f]);
        g.store(chunk(), frames);
        break;
    }
  }
}

}  // namespace

Graph draw_hosts(const Place& at, const Strategy& between) {
  const Shares shares(at, between);
  Graph g(shares.count() * shares.chunks());
  const int host = at.host_of(at.me);
  const std::vector<Rank> others = shares.others(host, at.me);
  const std::vector<int> mine = shares.carried_by(host, at.me);

  // Inside: the carrier receives the values of its host's ranks, in the order of ranks.
  for (const Rank other : others)
    for (const int s : shares.carried_by(host, other))
      for (const Chunk c : shares.chunks_from(host, s)) g.send(other, g.encode(c, Stage::kInside));
  for (const int s : mine)
    for (const Chunk c : shares.chunks_from(host, s)) {
      std::vector<Graph::Frame> values;
      for (const Rank r : shares.ranks(host))
        if (r != at.me) values.push_back(g.recv(r, c, Stage::kInside));
      g.merge(c, values);
    }

  // Between: the flat strategy among the carriers of a share.
  for (const int s : mine) embed(g, shares, host, s, others);

  // The result: the same bytes that were sent between hosts.
  for (const Rank other : others) {
    const Graph between_others = shares.graph(host);
    for (const int s : shares.carried_by(host, other))
      for (const Node& node : between_others.nodes()) {
        if (node.op != Op::kStore) continue;
        std::vector<Graph::Frame> frames(node.frames.size());
        for (const std::size_t f : arrival_order(shares, between_others, node, host))
          frames[f] = g.recv(other, shares.chunk(s, node.arg));
        g.store(shares.chunk(s, node.arg), frames);
      }
  }
  return g;
}

int chunks_of_hosts(const Place& at, const Strategy& between) {
  const Shares shares(at, between);
  return shares.count() * shares.chunks();
}

StrategyCost cost_of_hosts(const Place& at, const Strategy& between) {
  const Shares shares(at, between);
  const StrategyCost flat = between.cost({0, shares.hosts()});
  const auto all = static_cast<double>(shares.count());
  StrategyCost cost{.steps = flat.steps + (shares.count() > 1 ? 2 : 0),
                    .frames_sent = 0,
                    .encodes = shares.count() * shares.chunks(),
                    .wire_shares = 0,
                    .concat_shares = 0};
  for (int host = 0; host < shares.hosts(); ++host)
    for (const Rank r : shares.ranks(host)) {
      const int carried = static_cast<int>(shares.carried_by(host, r).size());
      const int others = static_cast<int>(shares.ranks(host).size()) - 1;
      // A share's stored frames are one per host: one per chunk, or all frames of the only chunk.
      const int values = others > 0 ? (shares.count() - carried) * shares.chunks() : 0;
      const int results = carried * others * shares.hosts();
      cost.frames_sent = std::max(cost.frames_sent, values + carried * flat.frames_sent + results);
      cost.wire_shares = std::max(cost.wire_shares, carried / all * flat.wire_shares);
      cost.concat_shares = std::max(cost.concat_shares, carried / all * flat.concat_shares);
      if (others > 0) cost.inside_shares = std::max(cost.inside_shares, (shares.count() - carried) / all);
      const double once = carried / all * others;
      cost.result_shares = std::max(cost.result_shares, once * shares.hosts() / shares.chunks());
      cost.concat_result_shares = std::max(cost.concat_result_shares, once * shares.hosts());
    }
  // Each share leaves each host once, whichever rank is its carrier.
  cost.link_shares = flat.wire_shares;
  cost.concat_link_shares = flat.concat_shares;
  cost.senders = shares.hosts() > 1 ? flat.senders : 0;
  cost.roundings = flat.roundings + (shares.count() > 1 ? 1 : 0);
  return cost;
}

}  // namespace tithe
