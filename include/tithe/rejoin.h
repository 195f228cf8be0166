// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lets surviving and new ranks agree on the members of the next epoch, although any of them may fail meanwhile. They
// use a board, a key-value store that outlives the ranks; its only guarantee is that the first write under a key wins.
//
//   one       an epoch has one set of members: the deciding rank writes it with a first-write-wins key
//   quorum    the members include more than half of the previous epoch's members, or half of them and its first member:
//             of two halves that cannot reach each other at most one continues, even on different boards
//   order     surviving members keep their order; new members follow in order of arrival
//   name      a new member needs a name that no previous member has: a restarted process waits until the others have
//             noticed the loss of its predecessor
//   named     an excluded rank gets an error; a timeout names the missing members
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tithe/connect.h"

namespace tithe {

struct Board {
  using Text = std::vector<std::uint8_t>;
  // Writes `value` under `key` unless the key exists. Returns the stored value.
  std::function<Result<Text>(const std::string& key, ByteView value)> put_first;
  // The value under `key`; nullopt: nothing yet.
  std::function<Result<std::optional<Text>>(const std::string& key)> get;
};
// A board in a folder that all ranks reach and no other user may write to: a file for each key.
Board board_in(const std::string& folder);

struct RejoinOptions {
  Board board;
  std::string me;           // this rank's name
  std::uint64_t epoch = 0;  // the epoch that begins; a new rank need not set it
  std::vector<std::string> before =
      {};  // members of the previous epoch; in epoch 0 the expected members. Empty: this rank is new
  // The members of `before` that this rank has lost. Rejoining waits for the others: they may still compute.
  std::vector<std::string> missed = {};
  // Called repeatedly: the members lost meanwhile, as Session::missed() returns them. Only if the session is of the
  // previous epoch.
  std::function<std::vector<std::string>()> lost = {};
  // Further names that a new member must not have: the session's members, if epochs between have failed. None of them
  // is booked as lost yet.
  std::vector<std::string> taken = {};
  int min_world = 1;
  int max_world = 1 << 16;  // later new ranks are excluded
  // Once a quorum is present, rejoining waits `window` for members that some rank has lost, and half of `timeout` for
  // the others.
  std::chrono::milliseconds window{300};
  std::chrono::milliseconds timeout{60'000};
  std::function<bool()> interrupted = {};  // as Launch::interrupted
  // A clock of tests; empty: the system's.
  std::function<std::chrono::steady_clock::time_point()> now = {};
  std::function<void(std::chrono::milliseconds)> sleep = {};
};

struct RejoinResult {
  std::uint64_t epoch = 0;
  std::vector<std::string> members = {};  // by rank
  Rank rank = 0;
  AllGather all_gather = {};  // among them, over the board: for open_transport
  bool joined = false;        // some of them are new
};

// kTimeout: no quorum, or fewer ranks than min_world; names the missing ranks. kPeerLost: the others continued without
// this rank. kInvalid: wrong names.
Result<RejoinResult> rejoin(const RejoinOptions& options);

// True if a new rank that these members would accept waits for the next epoch.
Result<bool> new_ranks_waiting(const Board& board, std::uint64_t next_epoch,
                               const std::vector<std::string>& members, int max_world = 1 << 16);

}  // namespace tithe
