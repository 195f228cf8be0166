// SPDX-License-Identifier: Apache-2.0
#pragma once
// Classes of ranks that do the same at the same time. The first rank of each class is simulated and represents it.
//
//   by rank    all are alike, counted round the world or, where strategies treat hosts apart, round the hosts and
//              inside each: one rank stands for all
//   by host    hosts are alike, but the ranks of one are not, such as in a ring, where the last one alone sends to the
//              next host: the ranks of host 0 stand for all
//   none       all are simulated
//   mirrored   if simulated rank r sends message m to rank r + d, then rank r - d sends m to
//              rank r
//   proven     on what strategies draw for two small worlds of such hosts; where ranks of a host talk to all others
//              alike, the order in which they come to those of their own host is not looked at (world_test.cc: within
//              1 %)
#include <map>
#include <span>

#include "advice/sim/cluster.h"
#include "tithe/seam/graph.h"

namespace tithe::sim {

class Classes {
 public:
  static Classes none(const Cluster& cluster);
  // The fewest that stand for all, whichever of these strategies a part has.
  static Classes of(const Cluster& cluster, std::span<const Strategy* const> strategies);

  // The simulated ranks are 0 .. simulated()-1.
  int simulated() const { return ranks_; }
  int world() const { return world_; }
  int ranks_of_host() const { return ranks_of_host_; }
  bool by_rank() const { return kind_ == Kind::kRank; }
  bool by_host() const { return kind_ == Kind::kHost; }
  // The simulated rank of the same class.
  int representative(Rank r) const {
    return kind_ == Kind::kRank ? 0 : kind_ == Kind::kHost ? r % ranks_of_host_ : r;
  }

  // The message of a simulated rank that is like the one from `from` to a simulated rank.
  struct MessagePath {
    int rank;
    Rank to;
  };
  MessagePath path_of(Rank from, int to, const Strategy& strategy) const;

 private:
  enum class Kind { kNone, kHost, kRank };
  enum class Round { kWorld, kHosts };  // how ranks are counted
  int world_ = 0, ranks_ = 0, ranks_of_host_ = 1;
  Kind kind_ = Kind::kNone;
  std::map<const Strategy*, Round> round_;  // by rank
};

}  // namespace tithe::sim
