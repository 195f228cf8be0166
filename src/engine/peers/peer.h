// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Peer is what a runner knows of one other rank. Plain data, under the runner's mutex.
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

// Cards of one peer that may wait here for this rank's own layouts: so many layouts may a round have.
inline constexpr std::size_t kMostCardsAhead = 1024;

struct Peer {
  // Received from it so far.
  Fifo<Card> cards;              // of layouts that are not agreed on yet, in order
  std::uint32_t first_card = 0;  // the layout of cards.front()
  std::uint64_t done = 0;        // rounds whose work it has ended
  std::uint64_t begun = 0;       // rounds that it has begun, as far as it says
  std::uint64_t away_ns = 0;     // Done::away_ns of its last one
  // Done::finite of its last two, by their numbers modulo 2: it may be one round ahead.
  std::array<bool, 2> finite = {true, true};
  ReplayWindow numbers;     // of its tagged messages
  std::uint32_t words = 0;  // control messages that came from it whole
  bool gone = false;        // the transport says so:
  Status why_gone = {};
  bool withdrew = false;  // it took back a message that this rank waits for: it parts, and will say why
  bool leaves = false;    // it has said so
  std::optional<Evidence> evidence = {};

  // Bytes of steps' frames.
  std::uint64_t sent = 0;                                  // to it
  std::uint64_t received = 0;                              // from it, as far as they have arrived
  std::uint64_t control_bytes = 0;                         // from it, on the control channel
  std::uint64_t received_before = 0, reported_before = 0;  // when this rank began to wait
  Instant began = {};                                      // and when that was

  // Clocks.
  Instant heard = {};                      // anything expected: bytes, cards, done, answers
  Instant gained = {};                     // the same without answers
  std::optional<Instant> unanswered = {};  // the first ask since `heard`
  std::optional<Instant> on_the_way = {};  // since when it says that it sent what did not come
  Instant spoke = {};                      // its last control message, whatever it said
  Instant asked = {};
  std::uint32_t asks = 0, answers = 0;  // numbers of the last ones
  Report report = {};                   // its last word

  // One small message at a time is under way to it.
  Arena out, in;
  bool out_busy = false;
  std::uint32_t told = 0;                            // control messages to it
  bool ask_pending = false, answer_pending = false;  // what is to be told next
  std::uint32_t answer_number = 0;
  std::uint64_t told_done = 0, told_begun = 0;
};

}  // namespace tithe::engine
