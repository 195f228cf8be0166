// SPDX-License-Identifier: Apache-2.0
#pragma once
// How ranks that are left, and others with them, agree on who goes on, when any of them may be gone: over a board,
// which outlives them all. The first to write under a key counts; that is all that is asked of a board.
//
//   one       of an epoch there is one set of members: whoever decides writes it where the first one counts
//   quorum    they are more than half of the members of the epoch before, or half of them and its first member: of two
//             halves that do not see each other never both go on, whatever their boards say
//   order     who was there keeps its order; behind them come those that are new, as they came
//   name      who is new has a name that no member of before has: a process that is started anew in the place of one
//             that the others have not missed yet waits until they have
//   told      who is left out hears so; who waits in vain hears who did not come
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
  // Writes `value` where nothing stands under `key` yet. Returns what stands there now.
  std::function<Result<Text>(const std::string& key, ByteView value)> put_first;
  // The value under `key`; nullopt: nothing yet.
  std::function<Result<std::optional<Text>>(const std::string& key)> get;
};
// A board in a folder that all ranks reach and nobody else may write to: a file for each key.
Board board_in(const std::string& folder);

struct Reunion {
  Board board;
  std::string me;           // this rank's name
  std::uint64_t epoch = 0;  // that begins; who is new need not know it
  std::vector<std::string> before =
      {};  // members of the epoch before; of epoch 0: who is to come. Empty: this rank is new
  // The members of `before` that this rank has reason to believe lost. Others are waited for: they may still compute.
  std::vector<std::string> missed = {};
  // Asked at each look: those that have been lost meanwhile, as Session::missed says. Only where the session is of the
  // epoch before: who has gone on from an older one in an epoch that failed is not lost.
  std::function<std::vector<std::string>()> lost = {};
  // Names that nobody new may have beside those of `before`: of the session's members, should epochs between have
  // failed. It has booked none of them as lost yet.
  std::vector<std::string> taken = {};
  int min_world = 1;
  int max_world = 1 << 16;  // who is new and comes later is left out
  // With a quorum there, those that anybody misses are waited for so long; others half of `timeout`, in epoch 0 all.
  std::chrono::milliseconds window{300};
  std::chrono::milliseconds timeout{60'000};
  std::function<bool()> interrupted = {};  // as Launch::interrupted
  // A clock of tests; empty: the system's.
  std::function<std::chrono::steady_clock::time_point()> now = {};
  std::function<void(std::chrono::milliseconds)> sleep = {};
};

struct Reunited {
  std::uint64_t epoch = 0;
  std::vector<std::string> members = {};  // by rank
  Rank rank = 0;
  AllGather all_gather = {};  // among them, over the board: for open_transport
  bool joined = false;        // some of them are new
};

// kTimeout: no quorum came, or fewer than min_world; it names who did not. kPeerLost: the others went on without this
// rank. kInvalid: names that are wrong.
Result<Reunited> reunite(const Reunion& reunion);

// True if somebody new waits for the epoch that begins next whom these members would take in.
Result<bool> somebody_waits(const Board& board, std::uint64_t next_epoch,
                            const std::vector<std::string>& members, int max_world = 1 << 16);

}  // namespace tithe
