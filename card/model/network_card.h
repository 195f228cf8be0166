// SPDX-License-Identifier: Apache-2.0
#pragma once
// INCEPTIONN's network card (Li et al., MICRO 2018): packs and restores frames as card/rtl/card.sv does.
// card/docs/card_rtl.md has the conditions for packing a frame, docs/reference/format_card.md ("Packed frames") the
// format of packed frames.
//
//   whole       a frame that is packed in exact mode is restored bit for bit, except for padding; in the lossy mode,
//               it has the values that the codec inceptionn decodes
//   untouched   all other frames pass unchanged
//   honest      arbitrary bytes are valid input: a packed frame with any error is dropped and counted
//   twin        the same frames give the same frames and counts as card/rtl/card.sv (card/bench/card.cc), with SIMD
//               kernels and without
// A card allocates memory only in its constructor, and its outcome depends only on the frame and the registers.
#include <array>
#include <cstdint>
#include <vector>

#include "card/model/headers.h"
#include "codec/inceptionn/inceptionn.h"

namespace tithe::card {

inline constexpr std::size_t kMaxFrameBytes = 9216;  // of frames that are packed or restored
inline constexpr unsigned kDefaultDscp = 10;         // of the ToS byte 0x28

// The registers of card/rtl/card_regs.sv, with their values after reset.
struct Config {
  bool on = true;
  bool exact = true;  // a frame that cannot be restored bit for bit passes
  inceptionn::Mode mode = inceptionn::kStrict;
  int b = 10;  // the error bound is 2^-b; 1 .. 100
  unsigned dscp = kDefaultDscp;
  std::size_t least = 64;  // the fewest payload bytes of a frame that is packed
};

enum class Direction : std::uint8_t { kToWire, kToHost };

// The outcome for a frame. kInexact, kGrown: it passed, since packing it would be inexact or would make it longer.
enum class Event : std::uint8_t {
  kPassed,
  kPacked,
  kInexact,
  kGrown,
  kDropped
};  // kPacked to host: restored

// The counters of one direction; `passed` includes inexact and grown frames.
struct Counters {
  std::uint64_t passed = 0, packed = 0, inexact = 0, grown = 0, dropped = 0, bytes_in = 0, bytes_out = 0;
  void count(Event event, std::size_t in, std::size_t out);
};

struct Outcome {
  Event event;
  ByteView frame;  // the frame that leaves; empty if it was dropped
};

class Card {
 public:
  // `with`: inceptionn::kSimd or kReference; they give the same bytes.
  explicit Card(const Config& config, const inceptionn::Kernels& with);

  // Processes a frame that travels in `direction`. The outcome may point into `frame` and is valid until the next
  // call.
  Outcome pass(Direction direction, ByteView frame);

  const Config& config() const { return config_; }
  const Counters& counters(Direction direction) const {
    return counters_[static_cast<std::size_t>(direction)];
  }

 private:
  Outcome pack(ByteView frame);
  Outcome unpack(ByteView frame);
  bool round_trips(std::size_t n, bool finite) const;

  Config config_;
  const inceptionn::Kernels& with_;
  inceptionn::Classes classes_;
  std::array<Counters, 2> counters_ = {};
  std::vector<float> values_, left_;       // of a payload
  std::vector<std::uint8_t> out_;          // the frame that leaves
  std::vector<std::uint8_t> burst_;        // groups as a payload of the codec
  std::vector<std::uint8_t> group_bytes_;  // of each of its groups
};

}  // namespace tithe::card
