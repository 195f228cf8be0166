// SPDX-License-Identifier: Apache-2.0
#pragma once
// A runner's data about one other rank. Plain data, under the runner's mutex.
#include <array>
#include <chrono>
#include <optional>

#include "base/fifo.h"
#include "engine/peers/control.h"
#include "engine/program/arena.h"

namespace tithe::engine {

using Instant = std::chrono::steady_clock::time_point;
inline std::int64_t in_ns(Instant t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

// The most cards of one peer that wait for this rank's layouts: a limit for the number of new layouts in a round.
inline constexpr std::size_t kMaxCardsAhead = 1024;

struct Peer {
  // Received from the peer.
  Fifo<Card> cards;              // of layouts that are not agreed yet, in order
  std::uint32_t first_card = 0;  // the layout of cards.front()
  std::uint64_t done = 0;        // rounds whose work it has ended
  std::uint64_t begun = 0;       // rounds that it has begun, according to its messages
  std::uint64_t away_ns = 0;     // Done::away_ns of its last done message
  // Done::finite of its last two rounds, by round number modulo 2: the peer may be one round ahead.
  std::array<bool, 2> finite = {true, true};
  ReplayWindow numbers;                 // of its tagged messages
  std::uint32_t messages_received = 0;  // its valid control messages
  bool gone = false;                    // the transport reports it as lost
  Status why_gone = {};
  bool cancelled = false;  // it cancelled an awaited message: its farewell will follow
  bool leaving = false;    // it has announced its departure
  std::optional<Evidence> evidence = {};

  // Bytes of frames.
  std::uint64_t sent = 0;             // to the peer
  std::uint64_t received = 0;         // from the peer
  std::uint64_t control_bytes = 0;    // from the peer, on the control channel
  std::uint64_t received_before = 0;  // at wait_began

  // Clocks.
  Instant wait_began = {};                       // this rank's current wait
  Instant last_sign = {};                        // last expected bytes, card, done message or answer
  Instant last_progress = {};                    // the same without answers
  std::optional<Instant> unanswered_since = {};  // first ask since `last_sign`
  // Since then, its reports say that bytes are in flight to this rank.
  std::optional<Instant> in_flight_since = {};
  Instant last_message = {};  // on the control channel
  Instant last_ask = {};
  std::uint32_t asks = 0, answers = 0;  // numbers of the last ones
  Report report = {};                   // its last report

  // Control messages to the peer: at most one is in flight.
  Arena out, in;
  bool out_busy = false;
  std::uint32_t messages_sent = 0;
  bool ask_pending = false, answer_pending = false;  // must be sent next
  std::uint32_t answer_number = 0;
  // Done::ended and Done::begun of the last done message to it.
  std::uint64_t done_sent = 0, begun_sent = 0;
};

}  // namespace tithe::engine
