// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decides that the session cannot continue: a peer is lost, a peer sends nothing for too long, or another part reports
// a failure. fail() is the only entry to the shutdown (shutdown.h): it drops all steps and frames that have not begun.
// Running steps end, and their results are ignored.
//
// Owns the clocks of this rank's waits; Peer has the clocks and the lost state of each peer. Under the runner's mutex,
// on any thread; check() on the communication lane.
#include "engine/run/runner_state.h"

namespace tithe::engine {

class FailureDetector {
 public:
  explicit FailureDetector(RunnerState& state)
      : state_(state), awaited_(static_cast<std::size_t>(state.member.world)) {}

  bool open() const { return state_.shutdown.open(); }
  // True if the session is open and this rank waits for other ranks.
  bool watching() const { return open() && waits(); }

  // ---- Failures
  // The first failure begins the shutdown; later ones are ignored, because their cause is usually the first one.
  void fail(const Trouble& trouble);
  void accuse(const Status& why) { fail({Finding::kAccused, why}); }
  void withdraw();  // this rank's caller ends the session
  // The transport can receive no more from the peer. Does not fail: a round may not need the peer.
  void lose(Rank peer, Status why);
  Status present() const;            // fails if a peer is gone without a farewell, or the session has failed
  std::vector<Rank> missed() const;  // ranks that are lost or silent

  // ---- Clocks
  void begin();  // starts a wait: earlier silence does not count
  // Restarts the peer's clocks. progress: the peer sent more than an answer.
  void record_sign(Peer& peer, bool progress) { record_sign(peer, progress, state_.now()); }
  static void record_sign(Peer& peer, bool progress, Instant now);
  void take_report(Peer& peer, const Report& report);  // from an ask or an answer
  Report report_to(Rank peer, std::uint32_t number);
  Instant next_check() const { return next_check_; }
  void check_soon() { next_check_ = {}; }
  // Checks all clocks. Sets Peer::ask_pending for the peers that need an ask message, or fails.
  void check();

 private:
  // The messages that this rank awaits from another rank, and since when.
  struct Awaited {
    bool must_send = false;  // the peer must send a message
    bool control = false;    // a control message is one of them
    bool outgoing = false;   // a message of this rank to the peer is in flight
    Instant since = {};
  };
  bool waits() const { return state_.queue.active() > 0 || state_.rounds.waits(); }
  std::vector<Rank> silent_ranks() const;  // peers that have not answered for half a timeout
  void discount_pause(Instant now);
  void count_bytes(Instant now);
  void find_awaited();  // fills awaited_
  std::optional<Trouble> check_peer(Rank peer, const Awaited& a, Instant now) const;
  Trouble idle(std::chrono::nanoseconds waited) const;

  RunnerState& state_;
  std::vector<Awaited> awaited_;  // by rank; reused
  Instant floor_ = {};            // clocks start here at the earliest
  Instant checked_ = {}, next_check_ = {};
  Instant arrived_ = {};  // when frame bytes last arrived, from any rank
};

}  // namespace tithe::engine
