// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parting is the end of a session: telling the others, hearing them, and agreeing on whom to blame. shutdown.cc has the
// rule of blame. It owns whether the session lives, what every rank has said, and the verdict.
//
//   kOpen -> begin() -> kParting: nothing new starts; testimonies travel -> settle() -> kOver: the verdict stands
//
// Plain data, under the runner's mutex; tell() and settle() on the communication lane. It goes one way, and once.
#include <deque>

#include "engine/peers/peer.h"
#include "engine/program/unit.h"

namespace tithe::engine {

class Parting {
 public:
  Parting(const Member& member, std::chrono::nanoseconds timeout);

  bool open() const { return life_ == Life::kOpen; }
  bool parting() const { return life_ == Life::kParting; }
  bool over() const { return life_ == Life::kOver; }
  bool told() const { return told_; }
  // The answer to calls: ok until the verdict, which a caller that withdrew knows beforehand.
  Status verdict() const { return over() || withdrawn_ ? verdict_ : Status{}; }
  const std::optional<Testimony>& said(Rank rank) const { return said_[static_cast<std::size_t>(rank)]; }

  void withdraw();                            // this rank's own caller ends it; begin() follows
  void begin(Testimony mine, Instant now);    // of an open session
  bool hear(Rank peer, Testimony testimony);  // false: it has spoken before, and once is what counts
  // An echo by `peer` of a rank that this one does not hear. True where that is news.
  bool hear_of(Rank peer, const Echo& echo);
  // Before tell(). missed_by(): the rank that says that it does not hear this one, if that is why the session ends; -1:
  // none. miss(): this rank does not hear it either.
  Rank missed_by() const;
  void miss(Rank rank);
  bool silent(Rank rank) const;  // the session ends by silence, and this rank does not hear that one either

  // Tells the others. A message that is done with is taken off by sent().
  void tell(Transport& transport, const std::vector<Peer>& peers, const Voice& voice,
            std::uint32_t uncommitted, bool finite);
  // After tell(): what others said, to those who do not hear them.
  void relay(Transport& transport, const std::vector<Peer>& peers, const Voice& voice);
  void sent() { --in_flight_; }
  // True if the others have said what they had to say, or had the time for it. Then the session is over. undecided: it
  // is not known yet whether they have committed the round that this rank had ended.
  bool settle(Instant now, const std::vector<Peer>& peers, bool undecided);

 private:
  bool misses(Rank witness, Rank rank) const;  // by what it said
  bool heard_enough(Rank rank, const std::vector<Peer>& peers) const;
  enum class Life : std::uint8_t { kOpen, kParting, kOver };

  const Member& member_;
  const std::chrono::nanoseconds timeout_;
  Life life_ = Life::kOpen;
  Testimonies said_;  // by rank
  Status verdict_;    // as all survivors agree
  Instant since_ = {};
  Arena frames_;
  std::vector<char> direct_;  // by rank: it spoke to this one itself
  using Pair = std::pair<Rank, Rank>;
  std::vector<Pair> relayed_;   // of whom, to whom
  std::vector<Pair> miss_too_;  // who told so by an echo, of whom
  std::deque<Arena> echoes_;
  std::size_t in_flight_ = 0;  // messages of tell()
  bool told_ = false;
  bool withdrawn_ = false;
};

}  // namespace tithe::engine
