// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks of a verb as processes of this same program: each is started with the verb's own command line and finds in its
// environment which rank it is.
//
//   none left   they end with the command, however it ends
//   named       one that is ended by a signal is named, and the others are told
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "emulated_hosts.h"
#include "sync_board.h"

namespace tithe::cli {

// A rank's process: its number and its descriptors.
struct RankPlace {
  Rank rank = 0;
  int board = -1;   // its descriptor
  int answer = -1;  // of a file that holds what rank 0 found
};

// A transport that opens between processes, by its text (empty: the usual one); on emulated hosts it stays on their
// links, and with cards its data connections have the ToS that cards look for. Afterwards the text says what was taken.
// kInvalid for one whose ranks are threads, and for cards behind another than tcp.
Status process_transport(std::string& transport, bool hosts, bool cards = false);

double process_seconds();  // processor time of this process so far

// nullopt in the command that a user started.
std::optional<RankPlace> rank_place();

// In a rank: does its work and ends the process. `work` gets the board; what rank 0 leaves in `answer` goes to the
// command. A Status goes to the board.
using RankWork = std::function<Status(SyncBoard& board, std::string* answer)>;
[[noreturn]] void be_rank(const RankPlace& place, const RankWork& work);

// In the command: starts the ranks of the board's world, waits until all have ended, and returns what rank 0 answered.
// With a link, its hosts are emulated (emulated_hosts.h).
Result<std::string> run_ranks(const std::optional<ShapedLink>& link, SyncBoard& board);

// In the process between the command and the ranks, which holds the network that joins them; a rank that is kSwitch.
inline constexpr Rank kSwitch = -1;
[[noreturn]] void be_switch(const RankPlace& place, const Hosts& hosts, const ShapedLink& link);

// Lets the line of progress follow the ranks.
class RankProgress {
 public:
  RankProgress(SyncBoard& board, const char* unit, std::uint64_t total);
  ~RankProgress();
  RankProgress(const RankProgress&) = delete;
  RankProgress& operator=(const RankProgress&) = delete;

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace tithe::cli
