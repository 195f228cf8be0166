// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shutdown ends a session: ranks exchange failure reports and derive the same verdict on the failed rank. shutdown.cc
// has the rule of blame. It owns the session's state, the failure reports by rank, and the verdict.
//
//   kOpen -> begin() -> kInProgress: nothing new starts, ranks exchange reports -> finish() -> kOver: verdict is final
//
// Plain data, under the runner's mutex; tell() and finish() on the communication lane. Once per session.
#include <deque>

#include "engine/peers/peer.h"
#include "engine/program/unit.h"

namespace tithe::engine {

class Shutdown {
 public:
  Shutdown(const Member& member, std::chrono::nanoseconds timeout);

  bool open() const { return life_ == Life::kOpen; }
  bool in_progress() const { return life_ == Life::kInProgress; }
  bool over() const { return life_ == Life::kOver; }
  bool told() const { return told_; }
  // The result of calls: ok until the verdict, or until withdraw() if this rank's caller ends the session.
  Status verdict() const { return over() || withdrawn_ ? verdict_ : Status{}; }
  const std::optional<FailureReport>& report_of(Rank rank) const {
    return reports_[static_cast<std::size_t>(rank)];
  }

  void withdraw();                                     // this rank's own caller ends it; begin() follows
  void begin(FailureReport mine, Instant now);         // of an open session
  bool hear(Rank peer, FailureReport failure_report);  // false: its first report counts
  // An echo by `peer` of a report of a rank that this rank does not hear. Returns true if it is new.
  bool hear_of(Rank peer, const Echo& echo);
  // Before tell(). missed_by(): the rank that says that it does not hear this one, if that is why the session ends; -1:
  // none. miss(): this rank does not hear it either.
  Rank missed_by() const;
  void miss(Rank rank);
  bool silent(Rank rank) const;  // the session ends by silence, and this rank does not hear that one either

  // Sends this rank's report to the others. Call sent() for each completed message.
  void tell(Transport& transport, const std::vector<Peer>& peers, const ControlIdentity& identity,
            std::uint32_t uncommitted, bool finite);
  // After tell(): relays reports to ranks that do not hear their authors.
  void relay(Transport& transport, const std::vector<Peer>& peers, const ControlIdentity& identity);
  void sent() { --in_flight_; }
  // Returns true if the others have reported, or their time is over. Then the session is over. undecided: this rank
  // does not know yet whether they have committed the round that it has ended.
  bool finish(Instant now, const std::vector<Peer>& peers, bool undecided);

 private:
  bool misses(Rank witness, Rank rank) const;  // by what it said
  bool heard_enough(Rank rank, const std::vector<Peer>& peers) const;
  enum class Life : std::uint8_t { kOpen, kInProgress, kOver };

  const Member& member_;
  const std::chrono::nanoseconds timeout_;
  Life life_ = Life::kOpen;
  FailureReports reports_;  // by rank
  Status verdict_;          // as all survivors agree
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
