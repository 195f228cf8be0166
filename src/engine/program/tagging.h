// SPDX-License-Identifier: Apache-2.0
#pragma once
// The proofs that a session's frames carry: how they are tagged, if at all (docs/reference/security.md), and their
// checksum.
#include <string_view>

#include "tithe/seam/frame.h"
#include "tithe/seam/transport.h"

namespace tithe::engine {

// The parts of a frame that tags cover, by the word in SessionOptions::authenticate. kInvalid for another word.
enum class Authenticate : std::uint8_t { kAuto, kHeaders, kPayloads };
Result<Authenticate> parse_authenticate(std::string_view word);

// The parts of a frame that checksums cover, by the word in SessionOptions::checksum. kInvalid for another word, and
// where tags are to cover payloads that checksums do not.
Result<Cover> parse_checksum(std::string_view word, Authenticate what);

struct Tagging {
  bool on = false;
  Authenticate what = Authenticate::kAuto;
  Cover checksum = Cover::kFrame;
  std::size_t trailer() const { return on ? kFrameTrailerBytes : 0; }
  // The cover of a frame for n values whose payload has at most `bound` bytes; the same on all ranks.
  Cover cover(std::size_t bound, std::size_t n) const;
};

// True if bytes that come over this transport without a right tag may be a stranger's. Else they are a peer's, and
// damaged.
bool strangers_may_speak(const Transport& transport);

}  // namespace tithe::engine
