// SPDX-License-Identifier: Apache-2.0
#include "engine/program/tagging.h"

#include <fmt/format.h>

#include "base/text.h"
#include "tithe/connect.h"

namespace tithe::engine {

Result<Authenticate> parse_authenticate(std::string_view word) {
  if (word == "auto") return Authenticate::kAuto;
  if (word == "headers") return Authenticate::kHeaders;
  if (word == "payloads") return Authenticate::kPayloads;
  return Status(Code::kInvalid,
                fmt::format("authenticate={}: must be auto, headers or payloads", printable(word, 40)));
}

bool strangers_may_speak(const Transport& transport) {
  const TransportKind* kind = find_transport(transport.kind());
  return !transport.key().empty() && (kind == nullptr || !kind->proves);
}

// Making and checking a tag over the payload runs at about 16 GB/s each. If a codec sends at most 4 bits per value,
// its own work dominates the round, so on a 10 Gbit/s link the tags cost less than 5 % of a round. For small frames
// the cost is negligible.
Cover Tagging::cover(std::size_t bound, std::size_t n) const {
  if (checksum == Cover::kHeader) return Cover::kHeader;
  constexpr std::size_t kSmallBytes = 16384;
  const bool cheap = bound <= kSmallBytes || bound <= n / 2;
  return what == Authenticate::kPayloads || (what == Authenticate::kAuto && cheap) ? Cover::kFrame
                                                                                   : Cover::kHeader;
}

}  // namespace tithe::engine
