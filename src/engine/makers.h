// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who made which frame, worked out from the graphs of all ranks: a frame's own word for it is its sender's, and blame
// must not rest on that.
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tithe/graph.h"

namespace tithe::engine {

class Makers {
 public:
  Makers(const Strategy& strategy, Rank me, int world);

  const Graph& graph() const { return graphs_[static_cast<std::size_t>(me_)]; }  // of this rank
  // Whether some rank merges frames, so that a frame may hold the payloads of several.
  bool any_merge() const { return any_merge_; }
  // Of a recv or encode node of this rank: the rank that encoded the frame, then, in their order, the ranks whose
  // payloads it joined to its own under the concat law.
  const std::vector<Rank>& of(int node) { return trace(me_, node); }

 private:
  using Ends = std::map<std::pair<Rank, Rank>, std::vector<int>>;  // by sender and receiver: nodes, in order
  const std::vector<Rank>& trace(Rank rank, int node);

  Rank me_;
  std::vector<Graph> graphs_;
  bool any_merge_ = false;
  Ends sent_;                                     // the nodes whose frames were sent
  std::map<std::pair<Rank, int>, int> received_;  // of a recv node: how many of that peer came before it
  std::map<std::pair<Rank, int>, std::vector<Rank>> known_;
};

}  // namespace tithe::engine
