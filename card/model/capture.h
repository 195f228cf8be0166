// SPDX-License-Identifier: Apache-2.0
#pragma once
// Captures of Ethernet frames in the classic pcap format (IETF draft-ietf-opsawg-pcap), in either byte order, with
// microseconds or nanoseconds. Written ones are little-endian with nanoseconds, so that equal frames give equal files.
#include <cstdint>
#include <vector>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::card {

struct Captured {
  std::uint64_t ns = 0;  // since 1970
  ByteView frame;        // of the capture's bytes
};

// kCorrupt if the bytes are no capture of Ethernet frames, are truncated, or contain frames that were truncated when
// they were captured: a card processes whole frames.
Result<std::vector<Captured>> read_capture(ByteView file);

void begin_capture(std::vector<std::uint8_t>& file);
void add_to_capture(std::vector<std::uint8_t>& file, std::uint64_t ns, ByteView frame);

}  // namespace tithe::card
