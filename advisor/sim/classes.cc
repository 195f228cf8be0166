// SPDX-License-Identifier: Apache-2.0
// Proves symmetry by comparing the graphs that a strategy draws for two ranks, in worlds of 3 and 5 hosts, after
// renaming peers and chunks relative to each rank.
#include "advisor/sim/classes.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

namespace tithe::sim {
namespace {

// A world of equal hosts.
struct Small {
  int hosts, ranks;
  int world() const { return hosts * ranks; }
};

Graph draw(const Strategy& strategy, Small world, Rank me) {
  std::vector<std::uint64_t> host;
  for (int r = 0; r < world.world(); ++r) host.push_back(static_cast<std::uint64_t>(r / world.ranks));
  const tithe::Hosts hosts = tithe::Hosts::of(host);
  return strategy.draw({me, world.world(), &hosts});
}

int modulo(int k, int n) { return (k % n + n) % n; }

// How `me` numbers the other ranks: relative to itself in the world; relative by host and inside the host; or relative
// by host only.
enum class Count { kWorld, kHostsAndInside, kHosts };
Rank counted(Count count, Small world, Rank me, Rank r) {
  if (count == Count::kWorld) return modulo(r - me, world.world());
  const int host = modulo(r / world.ranks - me / world.ranks, world.hosts);
  const int inside = count == Count::kHosts ? r % world.ranks : modulo(r - me, world.ranks);
  return host * world.ranks + inside;
}

// The owner of a chunk: none, a rank, or a share, that is one rank inside a host together with a host.
enum class Chunks { kOne, kOfRanks, kOfShares };
int counted(Count count, Chunks chunks, Small world, int of_all, Rank me, Chunk c) {
  if (chunks == Chunks::kOne) return 0;
  if (chunks == Chunks::kOfRanks) return counted(count, world, me, c);
  const int hosts = std::max(1, of_all / world.ranks);
  return counted(count, {hosts, world.ranks}, me, c % hosts * world.ranks + c / hosts);
}

// One operation in relative numbers: kind, peer, chunk, and for a forwarded frame its sender (-1: not forwarded).
using Verb = std::tuple<Op, int, int, int>;

// The operations of a rank: sends in their order; the others sorted, since sums are taken in rank order.
std::vector<Verb> verbs(const Strategy& strategy, Count count, Chunks chunks, Small world, Rank me) {
  const Graph graph = draw(strategy, world, me);
  std::vector<Verb> sends, others;
  for (std::size_t k = 0; k < graph.nodes().size(); ++k) {
    const Node& n = graph.nodes()[k];
    const auto chunk = [&](int node) {
      return counted(count, chunks, world, graph.chunks(), me, graph.chunk_of(node));
    };
    if (n.op == Op::kSend) {
      const Node& made = graph.nodes()[static_cast<std::size_t>(n.frames[0])];
      const int from = made.op == Op::kRecv ? counted(count, world, me, made.arg) : -1;
      sends.emplace_back(n.op, counted(count, world, me, n.arg), chunk(n.frames[0]), from);
      continue;
    }
    others.emplace_back(
        n.op, n.op == Op::kRecv ? counted(count, world, me, n.arg) : static_cast<int>(n.frames.size()),
        chunk(static_cast<int>(k)), -1);
  }
  std::sort(others.begin(), others.end());
  sends.insert(sends.end(), others.begin(), others.end());
  return sends;
}

// True if ranks of hosts with `ranks` ranks do the same under the strategy. Compares pairs of ranks in worlds of 3 and
// 5 hosts.
bool ranks_equivalent(const Strategy& strategy, Count count, int ranks) {
  const Small few{3, ranks}, more{5, ranks};
  const auto same = [&](Small world, Rank a, Rank b) {
    const int chunks = draw(strategy, world, a).chunks();
    const auto by = [&](Chunks how) {
      return verbs(strategy, count, how, world, a) == verbs(strategy, count, how, world, b);
    };
    return chunks == 1 ? by(Chunks::kOne) : by(Chunks::kOfRanks) || by(Chunks::kOfShares);
  };
  if (count != Count::kHosts) return same(few, 0, 1) && same(more, 0, ranks + 1);
  for (Rank r = 0; r < ranks; ++r)
    if (!same(few, r, r + ranks) || !same(more, r, r + 2 * ranks)) return false;
  return true;
}

// True if a rank sends equally many messages to every other rank, so that the placement of ranks on hosts does not
// matter.
bool talks_to_all(const Strategy& strategy, int ranks) {
  const Small world{3, ranks};
  std::vector<int> sends(static_cast<std::size_t>(world.world()));
  for (const Graph graph = draw(strategy, world, 0); const Node& n : graph.nodes())
    if (n.op == Op::kSend) ++sends[static_cast<std::size_t>(n.arg)];
  return std::adjacent_find(sends.begin() + 1, sends.end(), std::not_equal_to<>()) == sends.end() &&
         sends.back() > 0;
}

}  // namespace

Classes Classes::none(const Cluster& cluster) {
  Classes out;
  out.world_ = out.ranks_ = cluster.world();
  out.ranks_of_host_ = cluster.hosts()[0].ranks;
  return out;
}

Classes Classes::of(const Cluster& cluster, std::span<const Strategy* const> strategies) {
  Classes out = none(cluster);
  const int ranks = out.ranks_of_host_;
  if (!cluster.uniform() || cluster.world() % ranks != 0) return out;
  out.kind_ = Kind::kRank;
  for (const Strategy* const s : std::set<const Strategy*>(strategies.begin(), strategies.end())) {
    if (ranks_equivalent(*s, Count::kWorld, ranks) && (ranks == 1 || talks_to_all(*s, ranks))) {
      out.numbering_[s] = Numbering::kWorld;
    } else if (ranks_equivalent(*s, Count::kHostsAndInside, ranks)) {
      out.numbering_[s] = Numbering::kHosts;
    } else if (ranks > 1 && ranks_equivalent(*s, Count::kHosts, ranks)) {
      out.kind_ = Kind::kHost;
    } else {
      return none(cluster);
    }
  }
  out.ranks_ = out.kind_ == Kind::kRank ? 1 : ranks;
  return out;
}

Classes::MessagePath Classes::path_of(Rank from, int to, const Strategy& strategy) const {
  if (kind_ == Kind::kNone) return {from, to};
  const Small world{world_ / ranks_of_host_, ranks_of_host_};
  if (kind_ == Kind::kHost)
    return {from % ranks_of_host_, modulo(-(from / ranks_of_host_), world.hosts) * ranks_of_host_ + to};
  const Numbering numbering = numbering_.at(&strategy);
  return {0,
          counted(numbering == Numbering::kWorld ? Count::kWorld : Count::kHostsAndInside, world, from, 0)};
}

}  // namespace tithe::sim
