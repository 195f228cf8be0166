// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks say to each other on the control channel, each in one frame of at most kControlBytes
// (docs/format.md, "Control"):
//   card       before the first round of a layout: everything that ranks must agree on
//   farewell   the session is over: why, and which rank is to blame
#include <string>
#include <vector>

#include "tithe/frame.h"
#include "tithe/transport.h"

namespace tithe::engine {

inline constexpr std::size_t kControlBytes = 1024;

struct Card {
  std::uint32_t number = 0;  // of the layout, counted from 0 on every rank
  std::uint32_t world = 0;
  std::uint64_t run = 0;
  std::uint64_t seed = 0;
  std::uint64_t tensors = 0;
  std::uint64_t values = 0;
  std::uint64_t layout = 0;  // hash of keys, sizes and types
  std::uint64_t plan = 0;    // Plan::hash
  std::uint64_t round = 0;
  std::uint8_t average = 0;
  std::string codec;  // spec string
  std::string strategy;
  friend bool operator==(const Card&, const Card&) = default;
};

struct Farewell {
  Code code{};
  Rank blamed = Status::kNoPeer;
  std::uint32_t round = 0;
  std::string what;
};

struct Control {
  bool is_card = false;
  Card card;
  Farewell farewell;
};

// Texts that are too long are cut. Returns the bytes of the frame.
std::size_t write_card(const Card& card, Rank me, Bytes out);
std::size_t write_farewell(const Farewell& farewell, Rank me, Bytes out);
Result<Control> read_control(ByteView frame);

// Ok where all are equal; else kMismatch that names the ranks which differ from most, and in what. A tie
// goes to the side of the lowest rank.
Status compare_cards(const std::vector<Card>& cards);

}  // namespace tithe::engine
