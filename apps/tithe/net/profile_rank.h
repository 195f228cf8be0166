// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank of `tithe profile`. All ranks take the same measurements at the same time.
//
//   together   all ranks take each measurement at the same time, so contention for cores, memory and links is included
//   own time   work is measured as processor time, because the ranks of a machine wait for each other's cores; waits
//              are measured as wall time
#include <optional>
#include <string>
#include <vector>

#include "advisor/sim/profile.h"
#include "emulated_hosts.h"
#include "profile_board.h"
#include "rank_board.h"
#include "tithe/session.h"

namespace tithe::cli {

struct ProfileArgs {
  int ranks = 4;
  std::string link = "none";
  double delay_ms = 0;  // latency between two hosts, one way
  std::string hosts;    // which ranks share one; empty: each has its own
  std::string transport;
  std::string out = "profile.json";
  std::string cluster;              // a file for the same as a cluster; empty: none
  bool launched = false;            // by a launcher, on hosts of its own: this process is one of the ranks
  int port = 0;                     // where those meet; 0: at MASTER_PORT
  std::vector<std::string> codecs;  // empty: all
  std::size_t max_values = std::size_t{1} << 23;
  int lanes = 1;
};

// `answer`: of rank 0, the costs and links as a profile's JSON.
Status profile_as_rank(const ProfileArgs& args, const Hosts& hosts, const std::optional<ShapedLink>& link,
                       Rank me, RankBoard& board, std::string* answer);
// A rank that a launcher has started, perhaps on another machine than the others. If `able` is not ok, all ranks fail
// with it.
Status profile_as_launched(const ProfileArgs& args, const Launch& launch, const Status& able,
                           std::string* answer);

// Numbers on the board that the ranks need.
std::size_t profile_numbers(int ranks);

}  // namespace tithe::cli
