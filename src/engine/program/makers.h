// SPDX-License-Identifier: Apache-2.0
#pragma once
// The maker of each frame, worked out from the graphs of all ranks: a frame's own word for it is its sender's, and
// blame must not rest on that.
//
//   once   a session works it out once per strategy, however many layouts it has: at 64 ranks that is 30 ms
//   apart  a KnownMakers may be asked by several threads, and what it gives never changes
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
  // True if some rank merges frames, so that a frame may hold the payloads of several.
  bool any_merge() const { return any_merge_; }
  // The makers of the frame of a recv or encode node of this rank: the rank that encoded it, then, in their order, the
  // ranks whose payloads that one joined to its own under the concat law.
  const std::vector<Rank>& of(int node) const { return of_[static_cast<std::size_t>(node)]; }

 private:
  Graph graph_;
  bool any_merge_ = false;
  std::vector<std::vector<Rank>> of_;  // by node
};

// The makers that a session has worked out so far.
class KnownMakers {
 public:
  std::shared_ptr<const Makers> of(const Strategy& strategy, const Place& at);

 private:
  std::mutex mutex_;
  std::map<const Strategy*, std::shared_ptr<const Makers>> known_;
};

}  // namespace tithe::engine
