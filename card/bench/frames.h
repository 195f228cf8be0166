// SPDX-License-Identifier: Apache-2.0
#pragma once
// The model of the card, from docs/reference/format_card.md, with which its bench compares; and makers of frames as
// input.
#include "reference.h"

namespace bench {

struct CardConfig {
  bool on = true, exact = true;
  Setting setting{tithe::inceptionn::kStrict, 10};
  unsigned dscp = 10;
  std::size_t least = 64;
};
enum Event { kPassed, kPacked, kInexact, kGrown, kDropped };
struct Outcome {
  Event event;
  Bytes frame;
};

inline constexpr std::size_t kShim = 8, kMaxFrame = 9216;
inline constexpr unsigned kTcp = 6, kUdp = 17, kPackedTcp = 253, kPackedUdp = 254;

inline unsigned word(const Bytes& f, std::size_t at) {
  return at + 2 <= f.size() ? static_cast<unsigned>(f[at] << 8 | f[at + 1]) : 0U;
}
inline void set_word(Bytes& f, std::size_t at, std::size_t value) {
  f[at] = static_cast<std::uint8_t>(value >> 8);
  f[at + 1] = static_cast<std::uint8_t>(value);
}
inline unsigned fold(std::uint64_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<unsigned>(sum);
}
inline std::uint64_t words(const Bytes& f, std::size_t from, std::size_t to) {
  std::uint64_t sum = 0;
  for (std::size_t i = from; i < to; ++i) sum += (i - from) % 2 ? f[i] : static_cast<unsigned>(f[i]) << 8;
  return sum;
}

// The offsets in a frame that the card may change.
struct Headers {
  std::size_t l3 = 0, l4 = 0, payload = 0, end = 0;
  bool v6 = false, udp = false;
  unsigned protocol = 0, dscp = 0;
  bool packed() const { return protocol >= kPackedTcp; }
  std::size_t sum_at() const { return l4 + (udp ? 6 : 16); }
};

inline std::optional<Headers> headers(const Bytes& f) {
  Headers h;
  std::size_t at = 12;
  for (int vlans = 0; word(f, at) == 0x8100 || word(f, at) == 0x88a8; at += 4)
    if (++vlans > 2) return {};
  h.l3 = at + 2;
  h.v6 = word(f, at) == 0x86dd;
  if (!h.v6 && word(f, at) != 0x0800) return {};
  if (h.v6) {
    if (word(f, h.l3) >> 12 != 6) return {};
    h.dscp = word(f, h.l3) >> 6 & 63;
    h.l4 = h.l3 + 40;
    h.end = h.l4 + word(f, h.l3 + 4);
    if (word(f, h.l3 + 4) >= 0x4000) return {};
    h.protocol = word(f, h.l3 + 6) >> 8;
  } else {
    const unsigned first = word(f, h.l3);
    if (first >> 12 != 4 || (first >> 8 & 15) < 5) return {};
    h.dscp = first >> 2 & 63;
    h.l4 = h.l3 + 4 * (first >> 8 & 15);
    h.end = h.l3 + word(f, h.l3 + 2);
    if (word(f, h.l3 + 2) >= 0x4000 || (word(f, h.l3 + 6) & 0xbfff) != 0) return {};
    h.protocol = word(f, h.l3 + 8) & 255;
  }
  h.udp = h.protocol == kUdp || h.protocol == kPackedUdp;
  if (!h.udp && h.protocol != kTcp && h.protocol != kPackedTcp) return {};
  if (h.udp) {
    if (h.l4 + word(f, h.l4 + 4) != h.end) return {};
    h.payload = h.l4 + 8;
  } else {
    const unsigned flags = word(f, h.l4 + 12);
    if (flags >> 12 < 5 || (flags & 6) != 0) return {};
    h.payload = h.l4 + 4 * (flags >> 12);
  }
  const std::size_t first = h.payload + (h.packed() ? kShim : 0);
  if (first > std::min<std::size_t>(f.size(), 192) || first >= h.end) return {};
  return h;
}

// Of addresses, protocol, length and everything from l4 to `end`.
inline unsigned l4_sum(const Bytes& f, const Headers& h, std::size_t end, unsigned protocol) {
  const std::uint64_t addresses = h.v6 ? words(f, h.l3 + 8, h.l3 + 40) : words(f, h.l3 + 12, h.l3 + 20);
  return fold(addresses + protocol + (end - h.l4) + words(f, h.l4, end));
}
inline bool l4_holds(const Bytes& f, const Headers& h) {
  return (h.udp && !h.v6 && word(f, h.sum_at()) == 0) || l4_sum(f, h, h.end, h.protocol) == 0xffff;
}

// The headers of f over another payload; the checksum of the transport is made anew.
inline Bytes with_payload(const Bytes& f, const Headers& h, unsigned protocol, const Bytes& payload) {
  Bytes out(f.begin(), f.begin() + static_cast<std::ptrdiff_t>(h.payload));
  out.insert(out.end(), payload.begin(), payload.end());
  const std::size_t bytes = out.size() - h.l4;
  if (h.v6) {
    set_word(out, h.l3 + 4, bytes);
    out[h.l3 + 6] = static_cast<std::uint8_t>(protocol);
  } else {
    // RFC 1624, equation 3: a header whose checksum is wrong stays wrong.
    const unsigned length = static_cast<unsigned>(out.size() - h.l3);
    std::uint64_t sum = static_cast<std::uint16_t>(~word(f, h.l3 + 10));
    sum += static_cast<std::uint16_t>(~word(f, h.l3 + 2)) + length;
    sum += static_cast<std::uint16_t>(~h.protocol) + protocol;
    set_word(out, h.l3 + 2, length);
    out[h.l3 + 9] = static_cast<std::uint8_t>(protocol);
    set_word(out, h.l3 + 10, static_cast<std::uint16_t>(~fold(sum)));
  }
  if (h.udp) set_word(out, h.l4 + 4, bytes);
  const bool none = h.udp && !h.v6 && word(f, h.sum_at()) == 0;
  if (!none) {
    set_word(out, h.sum_at(), 0);
    const auto sum = static_cast<std::uint16_t>(~l4_sum(out, h, out.size(), protocol));
    set_word(out, h.sum_at(), h.udp && sum == 0 ? 0xffff : sum);
  }
  return out;
}

inline Outcome pack(const Bytes& f, const CardConfig& c) {
  const auto h = headers(f);
  if (!c.on || !h || h->packed() || h->end > kMaxFrame || h->dscp != c.dscp || h->end - h->payload < c.least)
    return {kPassed, f};
  if (h->end > f.size() || !l4_holds(f, *h)) return {kPassed, f};
  const Bytes payload(f.begin() + static_cast<std::ptrdiff_t>(h->payload),
                      f.begin() + static_cast<std::ptrdiff_t>(h->end));
  const Bytes groups = encode(payload, c.setting);
  if (groups.size() + kShim >= payload.size()) return {kGrown, f};
  if (c.exact ? decode(groups, payload.size(), c.setting) != payload : payload.size() % 4 != 0)
    return {kInexact, f};
  Bytes body{static_cast<std::uint8_t>(0x10 | (c.exact ? 1 : 0)),
             static_cast<std::uint8_t>(c.setting.user()),
             0,
             0,
             0,
             0,
             0,
             0};
  set_word(body, 2, payload.size());
  set_word(body, 4, word(f, h->sum_at()));
  body.insert(body.end(), groups.begin(), groups.end());
  return {kPacked, with_payload(f, *h, h->udp ? kPackedUdp : kPackedTcp, body)};
}

inline Outcome unpack(const Bytes& f, const CardConfig& c) {
  const auto h = headers(f);
  if (!c.on || !h || !h->packed() || h->end > kMaxFrame || word(f, h->payload + 2) > kMaxFrame)
    return {kPassed, f};
  const std::uint8_t flags = f[h->payload], how = f[h->payload + 1];
  const std::size_t bytes = word(f, h->payload + 2);
  if (h->end > f.size() || !l4_holds(f, *h) || (flags & 0xfe) != 0x10 || (how & 127) < 1 || (how & 127) > 100)
    return {kDropped, {}};
  const Bytes groups(f.begin() + static_cast<std::ptrdiff_t>(h->payload + kShim),
                     f.begin() + static_cast<std::ptrdiff_t>(h->end));
  const auto payload = decode(
      groups, bytes, {how & 128 ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict, how & 127});
  if (!payload) return {kDropped, {}};
  Bytes out = with_payload(f, *h, h->udp ? kUdp : kTcp, *payload);
  if (flags & 1) set_word(out, h->sum_at(), word(f, h->payload + 4));
  return {kPacked, out};
}

// A frame with valid checksums, data or not; sometimes then damaged.
inline Bytes some_frame(Random& random, const CardConfig& c, bool damages) {
  const auto pick = [&](std::uint64_t n) { return static_cast<std::size_t>(random() % n); };
  Bytes f;
  for (int i = 0; i < 12; ++i) f.push_back(static_cast<std::uint8_t>(random()));
  const auto put_word = [&](std::size_t value) {
    f.resize(f.size() + 2);
    set_word(f, f.size() - 2, value);
  };
  for (std::size_t vlans = pick(4) == 0 ? pick(4) : 0; vlans > 0; --vlans) {
    put_word(pick(2) ? 0x8100 : 0x88a8);
    put_word(pick(4096));
  }
  Headers h;
  h.v6 = pick(3) == 0;
  h.udp = pick(3) == 0;
  h.protocol = h.udp ? kUdp : kTcp;
  if (pick(16) == 0) h.protocol = static_cast<unsigned>(pick(256));
  const unsigned tos =
      (pick(8) == 0 ? static_cast<unsigned>(pick(256)) : c.dscp << 2 | static_cast<unsigned>(pick(4)));
  put_word(pick(32) == 0 ? pick(65536) : h.v6 ? 0x86dd : 0x0800);
  h.l3 = f.size();
  if (h.v6) {
    put_word(0x6000 | tos << 4);
    for (int i = 0; i < 3; ++i) put_word(pick(65536));
    f[h.l3 + 6] = static_cast<std::uint8_t>(h.protocol);
    for (int i = 0; i < 16; ++i) put_word(pick(65536));
  } else {
    const std::size_t ihl = pick(3) ? 5 : 5 + pick(11);
    put_word(0x4000 | ihl << 8 | tos);
    put_word(0);
    put_word(pick(65536));
    put_word(pick(12) == 0 ? pick(65536) : 0x4000);
    put_word(64 << 8 | h.protocol);
    put_word(0);
    for (std::size_t i = 6; i < 2 * ihl; ++i) put_word(pick(65536));
  }
  h.l4 = f.size();
  put_word(pick(65536));
  put_word(pick(65536));
  if (h.udp) {
    put_word(0);
    put_word(0);
  } else {
    const std::size_t offset = pick(2) ? 5 : pick(2) ? 8 : 5 + pick(11);
    for (int i = 0; i < 4; ++i) put_word(pick(65536));
    put_word(offset << 12 | 0x10 | (pick(24) == 0 ? pick(64) : 0));
    put_word(pick(65536));
    put_word(0);
    for (std::size_t i = 9; i < 2 * offset; ++i) put_word(pick(65536));
  }
  h.payload = f.size();
  Bytes payload = some_packet(random);
  if (pick(2)) {  // the values of a host that snaps them
    payload.resize(payload.size() / 4 * 4);
    if (auto snapped = decode(encode(payload, c.setting), payload.size(), c.setting)) {
      payload = *snapped;
      for (std::size_t i = 0; i < payload.size(); i += 4)  // -0 to +0
        if (payload[i] == 0 && payload[i + 1] == 0 && payload[i + 2] == 0 && payload[i + 3] == 0x80)
          payload[i + 3] = 0;
    }
  }
  if (pick(10) == 0) payload.resize(payload.size() / 2);
  f.insert(f.end(), payload.begin(), payload.end());
  h.end = f.size();
  if (h.v6)
    set_word(f, h.l3 + 4, h.end - h.l4);
  else {
    set_word(f, h.l3 + 2, h.end - h.l3);
    set_word(f, h.l3 + 10, static_cast<std::uint16_t>(~fold(words(f, h.l3, h.l4))));
  }
  if (h.udp) set_word(f, h.l4 + 4, h.end - h.l4);
  if (!h.udp || h.v6 || pick(4)) {
    const auto sum = static_cast<std::uint16_t>(~l4_sum(f, h, h.end, h.protocol));
    set_word(f, h.sum_at(), h.udp && sum == 0 ? 0xffff : sum);
  }
  if (f.size() < 60 || pick(16) == 0) f.resize(std::max<std::size_t>(60, f.size() + pick(40)));
  if (damages && pick(6) == 0) {
    if (pick(3) == 0)
      f.resize(1 + pick(f.size()));
    else
      for (std::size_t times = 1 + pick(2); times > 0; --times) {
        auto& byte = f[pick(2) ? pick(f.size()) : pick(std::min<std::size_t>(f.size(), 100))];
        byte = static_cast<std::uint8_t>(byte ^ 1U << pick(8));
      }
  }
  return f;
}

}  // namespace bench
