// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parting is the end of a session: telling the others, hearing them, and agreeing on whom to blame. parting.cc has the
// rule of blame. It owns whether the session lives, what every rank has said, and the verdict.
//
//   kOpen -> begin() -> kParting: nothing new starts; testimonies travel -> settle() -> kOver: the verdict stands
//
// Plain data, under the runner's mutex; tell() and settle() on the communication lane. It goes one way, and once.
#include "engine/peer.h"
#include "engine/unit.h"

namespace tithe::engine {

class Parting {
 public:
  Parting(const Member& member, std::chrono::nanoseconds timeout);

  bool open() const { return life_ == Life::kOpen; }
  bool parting() const { return life_ == Life::kParting; }
  bool over() const { return life_ == Life::kOver; }
  bool told() const { return told_; }
  // What calls answer: ok until the verdict, which a caller that withdrew knows beforehand.
  Status verdict() const { return over() || withdrawn_ ? verdict_ : Status{}; }
  const std::optional<Testimony>& said(Rank rank) const { return said_[static_cast<std::size_t>(rank)]; }

  void withdraw();                            // this rank's own caller ends it; begin() follows
  void begin(Testimony mine, Instant now);    // of an open session
  bool hear(Rank peer, Testimony testimony);  // false: it has spoken before, and once is what counts

  // Tells the others. A message that is done with is taken off by sent().
  void tell(Transport& transport, const std::vector<Peer>& peers, const Voice& voice,
            std::uint32_t uncommitted);
  void sent() { --in_flight_; }
  // Whether the others have said what they had to say, or had the time for it. Then the session is over. undecided: it
  // is not known yet whether they have committed the round that this rank had ended.
  bool settle(Instant now, const std::vector<Peer>& peers, bool undecided);

 private:
  enum class Life : std::uint8_t { kOpen, kParting, kOver };

  const Member& member_;
  const std::chrono::nanoseconds timeout_;
  Life life_ = Life::kOpen;
  Testimonies said_;  // by rank
  Status verdict_;    // as all survivors agree
  Instant since_ = {};
  Arena frames_;
  std::size_t in_flight_ = 0;  // messages of tell()
  bool told_ = false;
  bool withdrawn_ = false;
};

}  // namespace tithe::engine
