// SPDX-License-Identifier: Apache-2.0
#include "card/model/headers.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace tithe::card {

std::optional<Headers> headers(ByteView f) {
  constexpr unsigned kVlan = 0x8100, kOuterVlan = 0x88a8, kIpv4 = 0x0800, kIpv6 = 0x86dd;
  constexpr unsigned kMaxIpBytes = 0x4000, kFragmented = 0xbfff, kSynOrRst = 6;
  Headers h;
  std::size_t at = 12;
  for (int vlans = 0; word(f, at) == kVlan || word(f, at) == kOuterVlan; at += 4)
    if (++vlans > 2) return {};
  h.l3 = at + 2;
  h.v6 = word(f, at) == kIpv6;
  if (!h.v6 && word(f, at) != kIpv4) return {};
  const unsigned first = word(f, h.l3);
  if (h.v6) {
    if (first >> 12 != 6 || word(f, h.l3 + 4) >= kMaxIpBytes) return {};
    h.dscp = first >> 6 & 63;
    h.l4 = h.l3 + 40;
    h.end = h.l4 + word(f, h.l3 + 4);
    h.protocol = word(f, h.l3 + 6) >> 8;
  } else {
    const std::size_t header_words = first >> 8 & 15;
    if (first >> 12 != 4 || header_words < 5 || word(f, h.l3 + 2) >= kMaxIpBytes) return {};
    if ((word(f, h.l3 + 6) & kFragmented) != 0) return {};
    h.dscp = first >> 2 & 63;
    h.l4 = h.l3 + 4 * header_words;
    h.end = h.l3 + word(f, h.l3 + 2);
    h.protocol = word(f, h.l3 + 8) & 255;
  }
  h.udp = h.protocol == kUdp || h.protocol == kPackedUdp;
  if (!h.udp && h.protocol != kTcp && h.protocol != kPackedTcp) return {};
  if (h.udp) {
    if (h.l4 + word(f, h.l4 + 4) != h.end) return {};
    h.payload = h.l4 + 8;
  } else {
    const unsigned flags = word(f, h.l4 + 12);
    if (flags >> 12 < 5 || (flags & kSynOrRst) != 0) return {};
    h.payload = h.l4 + 4 * std::size_t{flags >> 12};
  }
  const std::size_t begin = h.payload + (h.packed() ? kShim : 0);
  if (begin > std::min(f.size(), kMaxHeaderBytes) || begin >= h.end) return {};
  return h;
}

unsigned fold(std::uint64_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<unsigned>(sum);
}

// Words of the host's order: the sum of swapped words is the swapped sum (RFC 1071, 2).
unsigned sum_of(ByteView bytes) {
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) sum += wire::get<std::uint32_t>(&bytes[i]);
  for (; i < bytes.size(); ++i) sum += std::uint64_t{bytes[i]} << (8 * (i % 2));
  const unsigned folded = fold(sum);
  return (folded & 255) << 8 | folded >> 8;
}

unsigned transport_sum(ByteView f, const Headers& h, unsigned protocol) {
  const ByteView addresses = h.v6 ? f.subspan(h.l3 + 8, 32) : f.subspan(h.l3 + 12, 8);
  return fold(std::uint64_t{sum_of(addresses)} + protocol + (h.end - h.l4) +
              sum_of(f.subspan(h.l4, h.end - h.l4)));
}

void mend(Bytes f, const Headers& was, unsigned protocol) {
  Headers h = was;
  h.end = f.size();
  const std::size_t bytes = h.end - h.l4;
  if (h.v6) {
    set_word(f, h.l3 + 4, bytes);
    f[h.l3 + 6] = static_cast<std::uint8_t>(protocol);
  } else {
    const auto not_of = [](unsigned value) { return static_cast<std::uint16_t>(~value); };
    const std::size_t length = h.end - h.l3;
    const std::uint64_t sum = std::uint64_t{not_of(word(f, h.l3 + 10))} + not_of(word(f, h.l3 + 2)) + length +
                              not_of(h.protocol) + protocol;
    set_word(f, h.l3 + 2, length);
    f[h.l3 + 9] = static_cast<std::uint8_t>(protocol);
    set_word(f, h.l3 + 10, not_of(fold(sum)));
  }
  const bool without = h.without_sum(f);
  if (h.udp) set_word(f, h.l4 + 4, bytes);
  if (without) return;
  set_word(f, h.sum_at(), 0);
  const unsigned sum = ~transport_sum(f, h, protocol) & 0xffffU;
  set_word(f, h.sum_at(), h.udp && sum == 0 ? 0xffff : sum);
}

}  // namespace tithe::card
