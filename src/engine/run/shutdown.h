// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shutdown ends a session: ranks exchange failure reports and derive the same verdict on the failed rank. shutdown.cc
// documents the rule. A Shutdown owns the session's state, the failure reports by rank, and the verdict.
//
//   kOpen -> begin() -> kInProgress: nothing new starts, ranks exchange reports -> finish() -> kOver: verdict is final
//
// Plain data, under the runner's mutex; send_report() and finish() on the communication lane. Once per session.
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
  bool report_sent() const { return report_sent_; }
  // The result of calls: ok until there is a verdict; kCancelled after withdraw().
  Status verdict() const { return over() || withdrawn_ ? verdict_ : Status{}; }
  const std::optional<FailureReport>& report_of(Rank rank) const {
    return reports_[static_cast<std::size_t>(rank)];
  }

  void withdraw();                              // this rank's caller ends the session; begin() follows
  void begin(FailureReport mine, Instant now);  // requires an open session
  // A farewell of `peer`, and the evidence that preceded it. Returns its report, or null if it has reported before.
  const FailureReport* take_farewell(Rank peer, const Farewell& farewell,
                                     const std::optional<Evidence>& evidence);
  // An echo from `peer` about a rank from which this rank receives nothing. Returns true if it contains a new report.
  bool take_echo(Rank peer, const Echo& echo);
  bool silent(Rank rank) const;  // the session ends by silence, and `rank` is silent to this rank

  // Sends this rank's report to all others. Call message_sent() for each completed message.
  void send_report(Transport& transport, const std::vector<Peer>& peers, std::uint32_t uncommitted,
                   bool finite, Instant now);
  // After send_report(): forwards reports to ranks that receive nothing from the authors.
  void relay(Transport& transport, const std::vector<Peer>& peers);
  void message_sent() { --in_flight_; }
  // Returns true, and ends the session, if all others have reported or the grace period is over. undecided: this rank
  // has ended a round and does not know whether other ranks have committed it.
  bool finish(Instant now, const std::vector<Peer>& peers, bool undecided);

 private:
  bool receives_nothing(Rank witness, Rank rank) const;  // according to the reports
  bool needs_no_report(Rank rank, const std::vector<Peer>& peers) const;
  enum class Life : std::uint8_t { kOpen, kInProgress, kOver };

  const Member& member_;
  const std::chrono::nanoseconds timeout_;
  Life life_ = Life::kOpen;
  FailureReports reports_;  // by rank
  Status verdict_;          // the same on all survivors
  Instant since_ = {};
  Arena frames_;
  std::vector<char> direct_;  // by rank: its report came directly
  using Pair = std::pair<Rank, Rank>;
  std::vector<Pair> relayed_;       // (author, receiver)
  std::vector<Pair> silent_pairs_;  // (author of an echo, rank that is silent to it)
  std::deque<Arena> echoes_;
  std::size_t in_flight_ = 0;  // messages of send_report()
  bool report_sent_ = false;
  bool withdrawn_ = false;
};

}  // namespace tithe::engine
