// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checksum of a frame: XXH3-64 with seed 0 over the header up to the checksum, then the payload
// (docs/reference/format.md).
//
//   the_same   checksum() gives what checksum_ref() gives, and so does a Checksum, however the bytes are cut
//
// xxHash has one that takes the vectors of the processor that it runs on, where its library was built with it (Debian's
// for x86 is); what is called by its usual name is built for the least processor. 17 and 75 GB/s in cache with AVX-512.
#include <array>
#include <cstdint>

#include "tithe/byte_view.h"

namespace tithe {

std::uint64_t checksum(ByteView header, ByteView payload);
std::uint64_t checksum_ref(ByteView header, ByteView payload);

// The same, of bytes that come one after the other.
class Checksum {
 public:
  Checksum();
  void add(ByteView bytes);
  std::uint64_t value() const;

 private:
  alignas(64) std::array<std::uint8_t, 576> state_;  // xxHash's
};

}  // namespace tithe
