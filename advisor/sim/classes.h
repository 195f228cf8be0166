// SPDX-License-Identifier: Apache-2.0
#pragma once
// Classes of ranks that do the same at the same time. The first rank of each class is simulated and represents the
// class.
//
//   - by rank: all ranks are alike if ranks are counted relative to each other, around the world or, under two-level
//     strategies, around the hosts and inside each host. One rank represents all.
//   - by host: hosts are alike, but the ranks of one host are not, as in a ring, where only the last rank of a host
//     sends to the next host. The ranks of host 0 represent all.
//   - none: all ranks are simulated.
//   - mirrored: if simulated rank r sends message m to rank r + d, then rank r - d sends m to rank r.
//   - verified: a symmetry is accepted if the graphs of two small worlds with the same hosts have it. If a host's
//     ranks send the same to all others, the order in which messages reach ranks of their own host is ignored (within
//     1 %, world_test.cc).
#include <map>
#include <span>

#include "advisor/sim/cluster.h"
#include "tithe/seam/graph.h"

namespace tithe::sim {

class Classes {
 public:
  static Classes none(const Cluster& cluster);
  // The fewest ranks that represent all, if every part uses one of these strategies.
  static Classes of(const Cluster& cluster, std::span<const Strategy* const> strategies);

  // The simulated ranks are 0 .. simulated()-1.
  int simulated() const { return ranks_; }
  int world() const { return world_; }
  int ranks_of_host() const { return ranks_of_host_; }
  bool by_rank() const { return kind_ == Kind::kRank; }

  // The message of a simulated rank that corresponds to the one from `from` to simulated rank `to`.
  struct MessagePath {
    int rank;
    Rank to;
  };
  MessagePath path_of(Rank from, int to, const Strategy& strategy) const;

 private:
  enum class Kind { kNone, kHost, kRank };
  enum class Numbering { kWorld, kHosts };
  int world_ = 0, ranks_ = 0, ranks_of_host_ = 1;
  Kind kind_ = Kind::kNone;
  std::map<const Strategy*, Numbering> numbering_;  // only by rank
};

}  // namespace tithe::sim
