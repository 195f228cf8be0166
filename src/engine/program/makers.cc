// SPDX-License-Identifier: Apache-2.0
#include "engine/program/makers.h"

#include <utility>

namespace tithe::engine {
namespace {

// The graphs of all ranks, with sends matched to receives: the k-th send from a to b matches the k-th recv of b from
// a (graph.h, "matched"). The makers of a frame follow by recursion: a received frame has the makers of the sender's
// frame, and an encoded frame has its own rank and the makers of all frames that were merged into its chunk before.
class Trace {
 public:
  Trace(const Strategy& strategy, Place at)
      : world_(static_cast<std::size_t>(at.world)), sent_(world_ * world_) {
    for (Rank r = 0; r < at.world; ++r) {
      at.me = r;
      const Graph& graph = graphs_.emplace_back(strategy.draw(at));
      std::vector<int> from(world_);
      std::vector<int>& received = received_.emplace_back(graph.nodes().size());
      known_.emplace_back(graph.nodes().size());
      for (std::size_t k = 0; k < received.size(); ++k) {
        const Node& n = graph.nodes()[k];
        any_merge_ = any_merge_ || (n.op == Op::kMerge && n.stage == Stage::kBetween);
        if (n.op == Op::kSend) sent(r, n.arg).push_back(n.frames[0]);
        if (n.op == Op::kRecv) received[k] = from[static_cast<std::size_t>(n.arg)]++;
      }
    }
  }

  const Graph& graph(Rank rank) const { return graphs_[static_cast<std::size_t>(rank)]; }
  bool any_merge() const { return any_merge_; }

  const std::vector<Rank>& of(Rank rank, int node) {
    const auto k = static_cast<std::size_t>(node);
    std::vector<Rank>& makers = known_[static_cast<std::size_t>(rank)][k];
    if (!makers.empty()) return makers;
    const Node& n = graph(rank).nodes()[k];
    if (n.op == Op::kRecv) {
      const std::vector<int>& frames = sent(n.arg, rank);
      const auto which = static_cast<std::size_t>(received_[static_cast<std::size_t>(rank)][k]);
      TITHE_ASSERT(which < frames.size());
      return makers = of(n.arg, frames[which]);
    }
    TITHE_ASSERT(n.op == Op::kEncode);
    makers.push_back(rank);
    for (std::size_t before = 0; before < k; ++before) {
      const Node& m = graph(rank).nodes()[before];
      if (m.op != Op::kMerge || m.arg != n.arg || m.stage != n.stage) continue;
      for (const int f : m.frames) {
        const std::vector<Rank>& joined = of(rank, f);
        makers.insert(makers.end(), joined.begin(), joined.end());
      }
    }
    return makers;
  }

 private:
  // The nodes of the sent frames, in order.
  std::vector<int>& sent(Rank from, Rank to) {
    return sent_[static_cast<std::size_t>(from) * world_ + static_cast<std::size_t>(to)];
  }

  std::size_t world_;
  std::vector<Graph> graphs_;
  bool any_merge_ = false;
  std::vector<std::vector<int>> sent_;
  // By rank and recv node: the number of earlier receives from that peer.
  std::vector<std::vector<int>> received_;
  std::vector<std::vector<std::vector<Rank>>> known_;  // by rank and node; empty: not computed yet
};

}  // namespace

Makers::Makers(const Strategy& strategy, const Place& at) : graph_(strategy.draw(at)) {
  Trace trace(strategy, at);
  any_merge_ = trace.any_merge();
  of_.resize(graph_.nodes().size());
  for (std::size_t k = 0; k < of_.size(); ++k) {
    const Op op = graph_.nodes()[k].op;
    if (op == Op::kRecv || op == Op::kEncode) of_[k] = trace.of(at.me, static_cast<int>(k));
  }
}

std::shared_ptr<const Makers> KnownMakers::of(const Strategy& strategy, const Place& at) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Makers>& known = known_[&strategy];
  if (known == nullptr) known = std::make_shared<const Makers>(strategy, at);
  return known;
}

}  // namespace tithe::engine
