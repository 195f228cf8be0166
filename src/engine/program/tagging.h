// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a session's frames are tagged (docs/reference/security.md), and what their checksums cover.
#include <string_view>

#include "tithe/seam/frame.h"
#include "tithe/seam/transport.h"

namespace tithe::engine {

// The part of a frame that tags cover (SessionOptions::authenticate). kInvalid for an unknown word.
enum class Authenticate : std::uint8_t { kAuto, kHeaders, kPayloads };
Result<Authenticate> parse_authenticate(std::string_view word);

struct Tagging {
  bool on = false;
  Authenticate what = Authenticate::kAuto;
  Cover checksum = Cover::kFrame;  // kHeader if the transport rounds payloads
  std::size_t trailer() const { return on ? kFrameTrailerBytes : 0; }
  // The cover for a frame of n values with a payload of at most `bound` bytes; the same on all ranks.
  Cover cover(std::size_t bound, std::size_t n) const;
};

// True if bytes without a valid tag on this transport may come from outside the job. Otherwise they come from the
// peer, and are damaged.
bool strangers_may_speak(const Transport& transport);

}  // namespace tithe::engine
