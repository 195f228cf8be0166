// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the frames of a session are tagged, if at all (docs/security.md).
#include <string_view>

#include "tithe/frame.h"

namespace tithe::engine {

// What tags cover, by the word in SessionOptions::authenticate. kInvalid for another word.
enum class Authenticate : std::uint8_t { kAuto, kHeaders, kPayloads };
Result<Authenticate> parse_authenticate(std::string_view word);

struct Tagging {
  bool on = false;
  Authenticate what = Authenticate::kAuto;
  std::size_t trailer() const { return on ? kFrameTrailerBytes : 0; }
  // Of a frame for n values whose payload has at most `bound` bytes; the same on all ranks.
  Cover cover(std::size_t bound, std::size_t n) const;
};

}  // namespace tithe::engine
