// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of a verb on this machine: processes of this same program, or threads. A rank's process runs the verb's own
// command line; an environment variable gives its rank.
//
//   no orphans   ranks' processes end with the command, however it ends
//   named        the Status names a rank that a signal ended; the other ranks end too
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "emulated_hosts.h"
#include "rank_board.h"

namespace tithe::cli {

// The board of the verb's ranks. The command creates it, with room for n numbers; its ranks' processes join it.
Result<RankBoard> open_board(int world, std::size_t n);

// The work of one rank. Rank 0 may set `answer`.
using RankWork = std::function<Status(Rank me, std::string* answer)>;

// Starts a process for each rank of the board, waits until all have ended, and returns the answer of rank 0. A rank's
// process does not return from this call: it does its work and ends. With a link, hosts are emulated
// (emulated_hosts.h).
Result<std::string> run_processes(RankBoard& board, const Hosts& hosts, const std::optional<ShapedLink>& link,
                                  const RankWork& work);

// The same with a thread for each rank.
Result<std::string> run_threads(RankBoard& board, const RankWork& work);

// True in a process of a rank.
bool is_rank_process();

// Completes the text of a transport between processes. Empty becomes the default transport; on emulated hosts the
// transport is bound to their links, and with cards its data connections carry the ToS value of packed traffic.
// kInvalid for a transport between threads, and for cards behind a transport other than tcp.
Status process_transport(std::string& transport, bool hosts, bool cards = false);

// In a rank on an emulated host: the host's first rank sets up its interface, and all ranks wait until all have one.
Status join_own_host(const Hosts& hosts, const ShapedLink& link, Rank me, RankBoard& board);

// In a rank: its transport to the other ranks, across the emulated hosts if there is a link.
Result<std::unique_ptr<Transport>> connect_ranks(const std::string& transport, const Hosts& hosts,
                                                 const std::optional<ShapedLink>& link, Rank me,
                                                 RankBoard& board);

double process_seconds();  // processor time of this process so far

// Shows the ranks' progress on a terminal. Does nothing in a rank's process.
class RankProgress {
 public:
  RankProgress(RankBoard& board, const char* unit, std::uint64_t total);
  ~RankProgress();
  RankProgress(const RankProgress&) = delete;
  RankProgress& operator=(const RankProgress&) = delete;

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace tithe::cli
