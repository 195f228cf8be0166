// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank of `tithe bench sync`: rounds over fresh gradients, each timed, then checked against the laws with all the
// other ranks.
#include <string>
#include <vector>

#include "emulated_hosts.h"
#include "sync_board.h"
#include "tithe/session.h"

namespace tithe::cli {

struct SyncArgs {
  int ranks = 4;
  std::string transport;  // empty: loop; with a link, tcp
  std::string codec = SessionOptions{}.codec;
  std::string strategy = SessionOptions{}.strategy;
  std::string hosts;
  std::string link = "none";
  std::size_t queue_bytes = kSwitchQueueBytes;
  std::string card = kCardModes[0];
  int servers = 0;
  std::string choices_file;
  std::string choices;  // what stands in it
  std::size_t n = 1'000'000;
  int rounds = 10;
  int lanes = 1;
  std::string pacer = SessionOptions{}.pacer;
  std::string checksum = SessionOptions{}.checksum;
  bool rounds_on_the_way() const { return checksum != SessionOptions{}.checksum; }  // cards may
};

inline constexpr std::string_view kSyncKey = "gradient";  // of the one tensor
inline constexpr int kWarmUpRounds = 2;                   // connections, buffers, pages; checked, not timed

// Filled by rank 0 alone.
struct SyncOutcome {
  std::vector<double> seconds;   // per round, of the slowest rank
  std::uint64_t bytes_sent = 0;  // per round, by the rank that sends most
  std::uint64_t wire_bytes =
      0;  // of the last round, of the host that sends most, all of TCP among them; 0 without a link
  bool identical = true;
  double apart = 0;         // where they may differ: the largest difference of a value from rank 0's
  std::string plan;         // Session::plan_text
  double ledger_error = 0;  // largest imbalance of a value over the largest value
};

// Ends with the Status that went to the board too, if any.
Status run_rank(Rank me, std::unique_ptr<Transport> transport, const SyncArgs& args, SyncBoard& board,
                SyncOutcome* outcome);

}  // namespace tithe::cli
