// SPDX-License-Identifier: Apache-2.0
#pragma once
// Invalid frames: cut, lengthened, forged, fragmented, with wrong lengths and checksums, with tags that claim more
// bytes than the frame has, and with payloads that grow beyond the largest frame. Many have valid checksums, so that
// the code after the checksum is reached.
#include "frames.h"

namespace bench {

// Sets valid checksums, as far as the frame's lengths allow.
inline void mend(Bytes& f) {
  const auto h = headers(f);
  if (!h || h->end > f.size()) return;
  if (!h->v6) {
    set_word(f, h->l3 + 10, 0);
    set_word(f, h->l3 + 10, static_cast<std::uint16_t>(~fold(words(f, h->l3, h->l4))));
  }
  set_word(f, h->sum_at(), 0);
  const auto sum = static_cast<std::uint16_t>(~l4_sum(f, *h, h->end, h->protocol));
  set_word(f, h->sum_at(), h->udp && sum == 0 ? 0xffff : sum);
}

// Sets IP's and UDP's length to the end of the frame.
inline void lengths_from_size(Bytes& f) {
  const auto h = headers(f);
  if (!h) return;
  if (h->v6)
    set_word(f, h->l3 + 4, f.size() - h->l4);
  else
    set_word(f, h->l3 + 2, f.size() - h->l3);
  if (h->udp) set_word(f, h->l4 + 4, f.size() - h->l4);
}

// A packed frame that is valid except for its length: `groups` behind a shim that claims `bytes`.
inline Bytes forged(Random& random, const Bytes& f, const Headers& h, const Bytes& groups,
                    std::size_t bytes) {
  Bytes body{static_cast<std::uint8_t>(0x10 | random() % 2),
             static_cast<std::uint8_t>(random() % 4 ? 1 + random() % 100 : random()),
             0,
             0,
             0,
             0,
             0,
             0};
  set_word(body, 2, bytes);
  set_word(body, 4, random() % 65536);
  body.insert(body.end(), groups.begin(), groups.end());
  return with_payload(f, h, h.udp ? kPackedUdp : kPackedTcp, body);
}

inline Bytes mutant(Random& random, Bytes f) {
  const auto pick = [&](std::uint64_t n) { return static_cast<std::size_t>(random() % n); };
  const auto h = headers(f);
  const std::size_t kind = pick(12);
  switch (kind) {
    case 0:  // cut, anywhere
      f.resize(1 + pick(f.size()));
      break;
    case 1:  // overlong
      for (std::size_t more = 1 + pick(pick(40) ? 300 : 20000); more > 0; --more)
        f.push_back(static_cast<std::uint8_t>(random()));
      if (pick(2)) lengths_from_size(f);
      break;
    case 2:  // any bytes
      f.resize(1 + pick(400));
      for (auto& byte : f) byte = static_cast<std::uint8_t>(random());
      break;
    case 3:  // bits of the headers
      for (std::size_t times = 1 + pick(4); times > 0; --times) {
        auto& byte = f[pick(std::min<std::size_t>(f.size(), 90))];
        byte = static_cast<std::uint8_t>(byte ^ 1U << pick(8));
      }
      break;
    case 4:  // a fragment
      if (h && !h->v6) set_word(f, h->l3 + 6, pick(2) ? 0x2000 : 1 + pick(0x1fff));
      break;
    case 5:  // IP's length
      if (h)
        set_word(f, h->l3 + (h->v6 ? 4 : 2),
                 pick(2) ? pick(65536) : word(f, h->l3 + (h->v6 ? 4 : 2)) + 7 - pick(15));
      break;
    case 6:  // a checksum
      if (h) set_word(f, pick(3) ? h->sum_at() : h->l3 + 10, pick(65536));
      break;
    case 7:  // a byte of the payload or the shim
      if (h && h->payload < f.size())
        f[h->payload + pick(std::min<std::size_t>(f.size() - h->payload, pick(2) ? 8 : 4000))] =
            static_cast<std::uint8_t>(random());
      break;
    case 8:  // tags that claim more bytes than the frame has
    case 9:
      if (h && h->end <= f.size()) {
        Bytes groups(2 + pick(60));
        for (auto& byte : groups) byte = static_cast<std::uint8_t>(pick(2) ? 0xff : random());
        return forged(random, f, *h, groups, 1 + pick(kind == 8 ? 400 : 65535));
      }
      break;
    case 10:  // more than an MTU, and more than the card holds: all tags 0
      if (h && h->end <= f.size()) {
        const std::size_t values = pick(3) ? 300 + pick(2004) : 2000 + pick(14000);
        return forged(random, f, *h, Bytes((values + 7) / 8 * 2, 0), 4 * values);
      }
      break;
    default:  // a header twice: the second is payload
      if (h && h->payload < f.size())
        f.insert(f.begin() + static_cast<std::ptrdiff_t>(h->l3 + pick(h->payload - h->l3)), 4,
                 static_cast<std::uint8_t>(random()));
      if (pick(2)) lengths_from_size(f);
      break;
  }
  if (pick(3) == 0) {
    lengths_from_size(f);
    mend(f);
  } else if (pick(2)) {
    mend(f);
  }
  return f;
}

}  // namespace bench
