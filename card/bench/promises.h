// SPDX-License-Identifier: Apache-2.0
#pragma once
// The promises of card/docs/card_rtl.md about frames: for each promise a frame made for it and the required result,
// without the model of frames.h.
#include "frames.h"

namespace bench {

struct Promise {
  const char* what;
  CardConfig config;
  Bytes frame;
  Event event;
};

// A frame of data, word by word.
struct Recipe {
  bool v6 = false, udp = false;
  unsigned tos = 0x28, vlans = 0, fragment = 0x4000, flags = 0x10;
  int extension = -1;
  std::size_t ip_options = 0, tcp_options = 0, padding = 0;  // words; bytes
  std::uint32_t sequence = 0;
  bool udp_sum = true;
  Bytes payload;

  Bytes make() const {
    Bytes f(12, 2);
    const auto add = [&](std::size_t value) {
      f.resize(f.size() + 2);
      set_word(f, f.size() - 2, value);
    };
    for (unsigned i = 0; i < vlans; ++i) {
      add(i ? 0x8100 : 0x88a8);
      add(100 + i);
    }
    const unsigned protocol = udp ? kUdp : kTcp;
    add(v6 ? 0x86dd : 0x0800);
    const std::size_t l3 = f.size();
    if (v6) {
      add(0x6000 | tos << 4);
      add(0);
      add(0);
      add((extension < 0 ? protocol : static_cast<unsigned>(extension)) << 8 | 64);
      for (int i = 0; i < 16; ++i) add(0x2000 + static_cast<unsigned>(i));
      if (extension >= 0) {
        add(protocol << 8);
        for (int i = 0; i < 3; ++i) add(0);
      }
    } else {
      add(0x4000 | (5 + ip_options) << 8 | tos);
      add(0);
      add(7);
      add(fragment);
      add(64 << 8 | protocol);
      add(0);
      for (int i = 0; i < 4; ++i) add(0x0a00 + static_cast<unsigned>(i));
      for (std::size_t i = 0; i < ip_options; ++i) {
        add(0x0101);
        add(0x0101);
      }
    }
    const std::size_t l4 = f.size();
    add(5001);
    add(5002);
    if (udp) {
      add(8 + payload.size());
      add(0);
    } else {
      add(sequence >> 16);
      add(sequence & 0xffff);
      add(3);
      add(4);
      add((5 + tcp_options) << 12 | flags);
      add(512);
      add(0);
      add(0);
      for (std::size_t i = 0; i < tcp_options; ++i) {
        add(0x0101);
        add(0x0101);
      }
    }
    f.insert(f.end(), payload.begin(), payload.end());
    const std::size_t bytes = f.size() - l4;
    if (v6) {
      set_word(f, l3 + 4, f.size() - l3 - 40);
    } else {
      set_word(f, l3 + 2, f.size() - l3);
      set_word(f, l3 + 10, static_cast<std::uint16_t>(~fold(words(f, l3, l4))));
    }
    if (!udp || udp_sum) {
      std::uint64_t sum = v6 ? words(f, l3 + 8, l3 + 40) : words(f, l3 + 12, l3 + 20);
      sum += protocol + bytes + words(f, l4, f.size());
      set_word(f, l4 + (udp ? 6 : 16), static_cast<std::uint16_t>(~fold(sum)));
    }
    f.resize(f.size() + padding, 0xee);
    return f;
  }
};

// n floats that the codec keeps at b = 10: 0, 2^-4, 0.5, 1.25 and the like.
inline Bytes kept_floats(std::size_t n) {
  static constexpr float kValues[] = {0.0F, 0.0625F, -0.5F, 0.0F, 1.25F, 0.0F, -0.001953125F, 0.0F, 0.0F};
  Bytes bytes(4 * n);
  for (std::size_t i = 0; i < n; ++i) std::memcpy(&bytes[4 * i], &kValues[i * 7 % std::size(kValues)], 4);
  return bytes;
}

inline std::vector<Promise> promises_to_wire() {
  std::vector<Promise> all;
  CardConfig exact, lossy, off;
  lossy.exact = false;
  off.on = false;
  Recipe base;
  base.payload = kept_floats(300);
  const auto add = [&](const char* what, const CardConfig& c, const Bytes& f, Event e) {
    all.push_back({what, c, f, e});
  };
  const auto with = [&](auto change) {
    Recipe r = base;
    change(r);
    return r.make();
  };
  add("data", exact, base.make(), kPacked);
  add("data, lossy", lossy, base.make(), kPacked);
  add("off", off, base.make(), kPassed);
  for (const unsigned ecn : {1U, 2U, 3U})
    add("ECN bits", exact, with([&](Recipe& r) { r.tos |= ecn; }), kPacked);
  for (const unsigned tos : {0U, 0x20U, 0x2cU, 0x68U, 0xa8U})
    add("another ToS", exact, with([&](Recipe& r) { r.tos = tos; }), kPassed);
  for (const unsigned vlans : {1U, 2U, 3U})
    add("VLAN tags", exact, with([&](Recipe& r) { r.vlans = vlans; }), vlans < 3 ? kPacked : kPassed);
  add("IPv6", exact, with([](Recipe& r) { r.v6 = true; }), kPacked);
  for (const int header : {0, 43, 44, 50, 51, 60, 135})
    add("IPv6 extension header", exact, with([&](Recipe& r) { r.v6 = true, r.extension = header; }), kPassed);
  for (const std::size_t n : {1U, 10U}) {
    add("IPv4 options", exact, with([&](Recipe& r) { r.ip_options = n; }), kPacked);
    add("TCP options", exact, with([&](Recipe& r) { r.tcp_options = n; }), kPacked);
    add("all options", exact, with([&](Recipe& r) { r.ip_options = r.tcp_options = n, r.vlans = 2; }),
        kPacked);
    add("TCP options, IPv6", exact, with([&](Recipe& r) { r.tcp_options = n, r.v6 = true; }), kPacked);
  }
  for (const unsigned fragment : {0x2000U, 0x6000U, 1U, 0x4001U})
    add("fragment", exact, with([&](Recipe& r) { r.fragment = fragment; }), kPassed);
  add("no DF", exact, with([](Recipe& r) { r.fragment = 0; }), kPacked);
  for (const unsigned flags : {0x12U, 0x02U, 0x14U, 0x04U})
    add("SYN, RST", exact, with([&](Recipe& r) { r.flags = flags; }), kPassed);
  for (const unsigned flags : {0x18U, 0x11U, 0x30U, 0x90U})
    add("PSH, FIN, URG, CWR", exact, with([&](Recipe& r) { r.flags = flags; }), kPacked);
  add("UDP", exact, with([](Recipe& r) { r.udp = true; }), kPacked);
  add("UDP, IPv6", exact, with([](Recipe& r) { r.udp = r.v6 = true; }), kPacked);
  add("UDP without a checksum", exact, with([](Recipe& r) { r.udp = true, r.udp_sum = false; }), kPacked);
  add("padding", exact, with([](Recipe& r) { r.padding = 7; }), kPacked);
  for (const std::size_t n : {15U, 16U})
    add("least", exact, with([&](Recipe& r) { r.payload = kept_floats(n); }), n < 16 ? kPassed : kPacked);
  for (const std::size_t n : {2290U, 2291U})  // 14 + 20 + 20 and 4 n: 9214, 9218
    add("a frame above 9216", exact, with([&](Recipe& r) { r.payload = kept_floats(n); }),
        n < 2291 ? kPacked : kPassed);
  add("no payload", exact, with([](Recipe& r) { r.payload.clear(); }), kPassed);
  // Values that the codec does not keep: exact passes, lossy packs. Ones that do not get shorter.
  Bytes other(1200), wide(1200);
  for (std::size_t i = 0; i < other.size(); i += 4) {
    const float value = 0.001F * static_cast<float>(i % 97 + 2), large = 3.7F + static_cast<float>(i);
    std::memcpy(&other[i], &value, 4);
    std::memcpy(&wide[i], &large, 4);
  }
  add("other values", exact, with([&](Recipe& r) { r.payload = other; }), kInexact);
  add("other values, lossy", lossy, with([&](Recipe& r) { r.payload = other; }), kPacked);
  for (const CardConfig& c : {exact, lossy})
    add("grown", c, with([&](Recipe& r) { r.payload = wide; }), kGrown);
  // Bytes that are no whole floats, and a segment that begins within one.
  for (const std::size_t n : {1U, 2U, 3U}) {
    Bytes odd = kept_floats(300);
    odd.resize(odd.size() - n);
    add("odd bytes, exact", exact, with([&](Recipe& r) { r.payload = odd; }), kPacked);
    add("odd bytes, lossy", lossy, with([&](Recipe& r) { r.payload = odd; }), kInexact);
  }
  // Broken already: never mended.
  const std::size_t sum_at = 14 + 20 + 16;
  Bytes f = base.make();
  f[sum_at] = static_cast<std::uint8_t>(f[sum_at] ^ 1U);
  add("wrong TCP checksum", exact, f, kPassed);
  f = base.make();
  f.resize(f.size() - 1);
  add("cut", exact, f, kPassed);
  f = base.make();
  set_word(f, 16, f.size());
  add("IP's length too long", exact, f, kPassed);
  f = with([](Recipe& r) { r.udp = true; });
  set_word(f, 38, word(f, 38) - 4);
  add("UDP's length too short", exact, f, kPassed);
  f = base.make();
  f[14] = 0x44;
  add("an IPv4 header of 4 words", exact, f, kPassed);
  f = base.make();
  f[14 + 20 + 12] = 0x40;
  add("a TCP header of 4 words", exact, f, kPassed);
  f = base.make();
  f[12] = 0x86;
  f[13] = 0xdd;
  add("IPv4 that claims to be IPv6", exact, f, kPassed);
  f = base.make();
  f[23] = 253;
  add("a host's own protocol 253", exact, f, kPassed);
  return all;
}

// Changes of a packed frame that a reader must drop or pass.
inline std::vector<Promise> promises_to_host(const Bytes& packed) {
  std::vector<Promise> all;
  CardConfig exact, off;
  off.on = false;
  const auto h = headers(packed);
  BENCH_CHECK(h && h->packed() && !h->v6 && !h->udp);
  const auto add = [&](const char* what, const CardConfig& c, const Bytes& f, Event e) {
    all.push_back({what, c, f, e});
  };
  // With a valid checksum, so that the frame is refused for another reason.
  const auto with = [&](auto change) {
    Bytes body(packed.begin() + static_cast<std::ptrdiff_t>(h->payload), packed.end());
    change(body);
    return with_payload(packed, *h, kPackedTcp, body);
  };
  const std::size_t claimed = word(packed, h->payload + 2);
  add("whole", exact, packed, kPacked);
  add("off", off, packed, kPassed);
  Bytes f = packed;
  f[h->sum_at()] = static_cast<std::uint8_t>(f[h->sum_at()] ^ 1U);
  add("wrong checksum", exact, f, kDropped);
  f = packed;
  f.resize(f.size() - 1);
  add("cut", exact, f, kDropped);
  f = packed;
  f[h->payload + 20] = static_cast<std::uint8_t>(f[h->payload + 20] ^ 4U);
  add("a bit of the groups", exact, f, kDropped);
  add("no such kind", exact, with([](Bytes& b) { b[0] = 0x20; }), kDropped);
  add("b = 0", exact, with([](Bytes& b) { b[1] = 0; }), kDropped);
  add("b = 101", exact, with([](Bytes& b) { b[1] = 101; }), kDropped);
  add("claims 0 bytes", exact, with([](Bytes& b) { set_word(b, 2, 0); }), kDropped);
  add("claims a group less", exact, with([&](Bytes& b) { set_word(b, 2, claimed - 32); }), kDropped);
  add("claims a group more", exact, with([&](Bytes& b) { set_word(b, 2, claimed + 32); }), kDropped);
  add("claims more than the card holds", exact, with([](Bytes& b) { set_word(b, 2, 9217); }), kPassed);
  add("a byte less", exact, with([](Bytes& b) { b.pop_back(); }), kDropped);
  add("a byte more", exact, with([](Bytes& b) { b.push_back(0); }), kDropped);
  add("tags that claim all", exact, with([](Bytes& b) { b[8] = b[9] = 0xff; }), kDropped);
  add("a shim alone", exact, with([](Bytes& b) { b.resize(8); }), kPassed);
  add("from 290 bytes to 9216", exact, with([](Bytes& b) {
        b.assign(8 + 2 * 288, 0);
        b[0] = 0x10;
        b[1] = 10;
        set_word(b, 2, 9216);
      }),
      kPacked);
  return all;
}

// A stream of floats that the codec keeps, cut into segments anywhere, some of them sent twice with other ends: the
// segments, by the number of their first byte.
inline std::vector<std::pair<std::size_t, Bytes>> segments(Random& random, const Bytes& stream) {
  std::vector<std::pair<std::size_t, Bytes>> all;
  const auto cut = [&](std::size_t from, std::size_t n) {
    n = std::min(n, stream.size() - from);
    const auto* at = stream.data() + from;
    all.emplace_back(from, Bytes(at, at + n));
  };
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t n = random() % 3 ? 1 + random() % 1460 : 1448;
    cut(at, n);
    if (random() % 3 == 0) cut(at + random() % std::min(n, stream.size() - at), 1 + random() % 1460);
    at += n;
  }
  return all;
}

}  // namespace bench
