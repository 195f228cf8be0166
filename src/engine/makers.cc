// SPDX-License-Identifier: Apache-2.0
#include "engine/makers.h"

namespace tithe::engine {

Makers::Makers(const Strategy& strategy, Rank me, int world) : me_(me) {
  for (Rank r = 0; r < world; ++r) graphs_.push_back(strategy.draw({r, world}));
  for (Rank r = 0; r < world; ++r) {
    std::map<Rank, int> from;
    const auto nodes = graphs_[static_cast<std::size_t>(r)].nodes();
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      const Node& n = nodes[k];
      any_merge_ = any_merge_ || n.op == Op::kMerge;
      if (n.op == Op::kSend) sent_[{r, n.arg}].push_back(n.frames[0]);
      if (n.op == Op::kRecv) received_[{r, static_cast<int>(k)}] = from[n.arg]++;
    }
  }
}

// The k-th send from a to b meets the k-th recv of b from a (graph.h, "matched").
const std::vector<Rank>& Makers::trace(Rank rank, int node) {
  const auto known = known_.find({rank, node});
  if (known != known_.end()) return known->second;
  const Graph& graph = graphs_[static_cast<std::size_t>(rank)];
  const Node& n = graph.nodes()[static_cast<std::size_t>(node)];
  std::vector<Rank> makers;
  if (n.op == Op::kRecv) {
    const auto& frames = sent_[{n.arg, rank}];
    const auto k = static_cast<std::size_t>(received_[{rank, node}]);
    TITHE_ASSERT(k < frames.size());
    makers = trace(n.arg, frames[k]);
  } else {
    TITHE_ASSERT(n.op == Op::kEncode);
    makers.push_back(rank);
    for (int k = 0; k < node; ++k) {
      const Node& m = graph.nodes()[static_cast<std::size_t>(k)];
      if (m.op != Op::kMerge || m.arg != n.arg) continue;
      for (const int f : m.frames) {
        const std::vector<Rank>& joined = trace(rank, f);
        makers.insert(makers.end(), joined.begin(), joined.end());
      }
    }
  }
  return known_[{rank, node}] = std::move(makers);
}

}  // namespace tithe::engine
