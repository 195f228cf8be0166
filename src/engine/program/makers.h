// SPDX-License-Identifier: Apache-2.0
#pragma once
// The makers of each frame, derived from the graphs of all ranks. A frame's header only contains its sender's claim,
// and blame must not depend on that claim.
//
//   once   a session derives the makers once per strategy, for all layouts: at 64 ranks this takes 30 ms
//   safe   several threads may call a KnownMakers, and its results never change
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tithe/seam/graph.h"

namespace tithe::engine {

class Makers {
 public:
  Makers(const Strategy& strategy, const Place& at);

  const Graph& graph() const { return graph_; }  // of this rank
  // True if some rank merges frames, so that a frame may contain the payloads of several ranks.
  bool any_merge() const { return any_merge_; }
  // The makers of the frame of this rank's recv or encode node: the rank that encoded it; then, in order, the ranks
  // whose payloads that rank joined to its own under the concat law.
  const std::vector<Rank>& of(int node) const { return of_[static_cast<std::size_t>(node)]; }

 private:
  Graph graph_;
  bool any_merge_ = false;
  std::vector<std::vector<Rank>> of_;  // by node
};

// A session's cache of makers.
class KnownMakers {
 public:
  std::shared_ptr<const Makers> of(const Strategy& strategy, const Place& at);

 private:
  std::mutex mutex_;
  std::map<const Strategy*, std::shared_ptr<const Makers>> known_;
};

}  // namespace tithe::engine
