// SPDX-License-Identifier: Apache-2.0
#pragma once
// Receives and sends the messages of the control channel (control.h). A received message updates Rounds,
// LayoutAgreement, Reconfiguration, FailureDetector or Shutdown. A message to send is derived from the state of these
// parts when the previous message to the peer is completed, so there is no queue of messages.
//
// Threads: only the communication lane (or the waiting caller, without lanes); send_soon() and the functions that are
// const on any thread. All under the runner's mutex, which is released while the transport accepts a message.
// Owns the flag that messages may be due, and the count of cards in flight. Each peer has one posted receive and at
// most one message in flight, in memory of its Peer; cards and farewells have memory of their own.
// Failure: a message that breaks the protocol is blamed on its sender. If strangers can send, a message without the
// job's tag is ignored. Over authenticated connections such a message comes from the peer, and is damaged. The memory
// that a peer's messages can occupy is bounded.
#include "engine/run/failure_detector.h"
#include "engine/run/layout_agreement.h"

namespace tithe::engine {

class ControlChannel {
 public:
  ControlChannel(RunnerState& state, FailureDetector& failures, LayoutAgreement& agreement)
      : state_(state), failures_(failures), agreement_(agreement) {}

  void listen();                          // posts the first receive of every peer
  void complete(const Completion& done);  // of a control operation
  // True once after a message that lets waiting jobs start.
  bool take_released() { return std::exchange(released_, false); }

  // The state of a part has changed: the communication lane calls send_pending() soon.
  void send_soon();
  bool has_pending() const { return pending_; }
  // Sends each peer its most important message, if the previous one is completed.
  void send_pending(RunnerLock::Hold& hold);
  // Sends the cards of new layouts to all peers.
  void send_cards(RunnerLock::Hold& hold);
  bool cards_in_flight() const { return cards_in_flight_ > 0; }
  // Agrees the round if all ranks have ended it, or if a rank has committed it according to its report.
  void agree_round(const FailureReport* committed = nullptr);
  // True if the round is agreed, and some peer lacks this rank's done message. The wait for peers to accept it ends at
  // send_deadline().
  bool done_pending() const;
  Instant send_deadline() const { return state_.rounds.since() + state_.limits.timeout; }

 private:
  void listen(Rank peer);
  void accuse(Rank peer, std::string what);  // of kCorrupt
  void take(Rank peer, Control& control);
  void take_done(Rank peer, const Done& done);
  void take_card(Rank peer, Card& card);
  void take_announcement(Rank peer, const Announcement& announcement);
  void take_report(Rank peer, const Control& control);
  void take_farewell(Rank peer, const Farewell& farewell);
  void take_proposal(Rank peer, Control& control);
  std::size_t write_pending(Rank peer, Bytes out);  // 0: no message is due

  RunnerState& state_;
  FailureDetector& failures_;
  LayoutAgreement& agreement_;
  bool released_ = false;
  bool pending_ = false;  // send_pending() may have work
  std::size_t cards_in_flight_ = 0;
};

}  // namespace tithe::engine
