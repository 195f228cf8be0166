// SPDX-License-Identifier: Apache-2.0
#pragma once
// The offsets in an Ethernet frame that a card may change, and the Internet checksum (RFC 1071). Numbers of headers
// are in network order.
#include <cstddef>
#include <optional>

#include "tithe/byte_view.h"

namespace tithe::card {

inline constexpr unsigned kTcp = 6, kUdp = 17, kPackedTcp = 253, kPackedUdp = 254;  // IP's protocols
inline constexpr std::size_t kShim = 8;  // bytes between the headers of a packed frame and its groups
inline constexpr std::size_t kMaxHeaderBytes = 192;  // longer headers are not parsed

// The 16 bits at `at`; 0 where the frame has no such bytes.
inline unsigned word(ByteView f, std::size_t at) {
  return at + 2 <= f.size() ? static_cast<unsigned>(f[at] << 8 | f[at + 1]) : 0U;
}
inline void set_word(Bytes f, std::size_t at, std::size_t value) {
  f[at] = static_cast<std::uint8_t>(value >> 8);
  f[at + 1] = static_cast<std::uint8_t>(value);
}

// A frame of TCP or UDP over IPv4 or IPv6 that is no fragment, no SYN or RST, has no IPv6 extension headers and at most
// two VLAN tags, and whose header lengths fit each other; or a packed frame of such. All but `v6` to `dscp` are offsets
// in the frame.
struct Headers {
  std::size_t l3 = 0, l4 = 0, payload = 0;
  std::size_t end = 0;  // of the IP packet by its header; the frame may be shorter, or padded
  bool v6 = false, udp = false;
  unsigned protocol = 0, dscp = 0;

  bool packed() const { return protocol >= kPackedTcp; }
  std::size_t sum_at() const { return l4 + (udp ? 6 : 16); }
  // UDP under IPv4 may omit its checksum.
  bool without_sum(ByteView f) const { return udp && !v6 && word(f, sum_at()) == 0; }
};

std::optional<Headers> headers(ByteView frame);

// The sum of 16-bit words modulo 65535; a 0 completes the last word. 0 if all bytes are 0, otherwise 1 .. 65535.
unsigned sum_of(ByteView bytes);
unsigned fold(std::uint64_t sum);  // of several such sums

// The sum of the pseudo header with this protocol and of all bytes from l4 to h.end, which must be in the frame. 65535:
// the checksum is right.
unsigned transport_sum(ByteView frame, const Headers& h, unsigned protocol);

// Sets the protocol in the headers of `frame`, and their lengths and checksums for the payload with which the frame now
// ends. IPv4's checksum is updated (RFC 1624, equation 3), so a wrong checksum stays wrong.
void mend(Bytes frame, const Headers& h, unsigned protocol);

}  // namespace tithe::card
