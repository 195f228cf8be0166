// SPDX-License-Identifier: Apache-2.0
#pragma once
// The required output of the engine: packets of groups, made by the reference encoder of the codec.
#include <bit>
#include <cstring>
#include <optional>
#include <random>

#include "check.h"
#include "codec/inceptionn/inceptionn.h"

namespace bench {

using tithe::inceptionn::classes;
using tithe::inceptionn::Mode;

struct Setting {
  Mode mode;
  int b;
  std::uint64_t user() const {
    return (mode == tithe::inceptionn::kLiteral ? 128U : 0U) + static_cast<unsigned>(b);
  }
};
inline constexpr Setting kSettings[] = {
    {tithe::inceptionn::kStrict, 10},  {tithe::inceptionn::kStrict, 6},  {tithe::inceptionn::kLiteral, 10},
    {tithe::inceptionn::kStrict, 1},   {tithe::inceptionn::kStrict, 20}, {tithe::inceptionn::kLiteral, 8},
    {tithe::inceptionn::kStrict, 100}, {tithe::inceptionn::kLiteral, 1}, {tithe::inceptionn::kLiteral, 100}};

inline Bytes encode(const Bytes& packet, Setting s) {
  const std::size_t n = packet.size() / 4;
  std::vector<float> values(n), left(n);
  if (n) std::memcpy(values.data(), packet.data(), 4 * n);
  Bytes out(4 * n + 2 * ((n + 7) / 8) + 64);
  const tithe::EncodeInput input{values.data(), nullptr, left.data(), n};
  out.resize(encode_groups(classes(s.mode, s.b), input, 0, out.data()).bytes);
  out.insert(out.end(), packet.end() - static_cast<std::ptrdiff_t>(packet.size() % 4), packet.end());
  return out;
}

// Nothing for bytes that do not fit.
inline std::optional<Bytes> decode(const Bytes& groups, std::size_t bytes, Setting s) {
  const auto c = classes(s.mode, s.b);
  const std::size_t n = bytes / 4;
  Bytes out;
  std::size_t at = 0;
  for (std::size_t first = 0; first < n; first += 8) {
    if (at + 2 > groups.size()) return {};
    unsigned tags = groups[at] | static_cast<unsigned>(groups[at + 1]) << 8;
    at += 2;
    for (std::size_t i = first; i < std::min(first + 8, n); ++i, tags >>= 2) {
      const unsigned tag = tags & 3U;
      if (at + tithe::inceptionn::kTagBytes[tag] > groups.size()) return {};
      const auto x = std::bit_cast<std::uint32_t>(receive(c, tag, groups.data() + at));
      for (int k = 0; k < 32; k += 8) out.push_back(static_cast<std::uint8_t>(x >> k));
      at += tithe::inceptionn::kTagBytes[tag];
    }
    if (tags != 0 && first + 8 > n) return {};
  }
  if (bytes == 0 || groups.size() != at + bytes % 4) return {};
  out.insert(out.end(), groups.begin() + static_cast<std::ptrdiff_t>(at), groups.end());
  return out;
}

// Values of every class, including special ones.
inline std::uint32_t some_float(Random& random, int kind) {
  static constexpr std::uint32_t kSpecial[] = {
      0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x7f800000, 0xff800000,
      0x7fc00000, 0xffc12345, 0x7f7fffff, 0x3f800000, 0xbf7fffff, 0x3a800000, 0x3a7fffff, 0x7f800001};
  const std::uint64_t r = random();
  const auto mantissa = static_cast<std::uint32_t>(r & 0x807fffffU);
  switch (kind) {
    case 0:
      return static_cast<std::uint32_t>(r);  // any bits
    case 1:
      return mantissa | static_cast<std::uint32_t>(110 + (r >> 40) % 20) << 23;  // about the classes
    case 2:
      return mantissa | static_cast<std::uint32_t>((r >> 40) % 2 ? 60 : 118) << 23;  // mostly small
    case 3:
      return mantissa | 0x41000000U;  // none fits
    case 4:
      return 0;
    case 5:
      return kSpecial[(r >> 40) % 16];
    case 6:
      return (mantissa & 0x80780000U) | static_cast<std::uint32_t>(119 + (r >> 40) % 8) << 23;  // few bits
    default:
      return some_float(random, static_cast<int>((r >> 50) % 7));
  }
}

inline Bytes some_packet(Random& random) {
  static constexpr std::size_t kSizes[] = {1,   2,   3,   4,    5,    7,    8,    28,   29,
                                           31,  32,  33,  36,   63,   64,   65,   100,  127,
                                           128, 129, 256, 1398, 1410, 1440, 1448, 1460, 8948};
  const std::uint64_t r = random();
  const std::size_t size = r % 4 ? kSizes[(r >> 8) % std::size(kSizes)] : 1 + (r >> 8) % 3000;
  const int kind = static_cast<int>((r >> 40) % 8);
  Bytes bytes((size + 3) / 4 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    const std::uint32_t x = some_float(random, kind);
    std::memcpy(&bytes[i], &x, 4);
  }
  bytes.resize(size);
  return bytes;
}

// A packet of groups cut, lengthened, changed in a bit, or with another length.
inline void damage(Packet& p, Random& random) {
  const std::uint64_t r = random();
  switch (r % 4) {
    case 0:
      p.bytes.resize(1 + (r >> 8) % p.bytes.size());
      break;
    case 1:
      for (std::uint64_t i = 0; i <= (r >> 8) % 200; ++i)
        p.bytes.push_back(static_cast<std::uint8_t>(random()));
      break;
    case 2: {
      auto& byte = p.bytes[(r >> 8) % p.bytes.size()];
      byte = static_cast<std::uint8_t>(byte ^ 1U << (r >> 60) % 8);
      break;
    }
    default:
      p.user = (p.user & ~0xffffULL) | (r >> 8) % 4000;
      break;
  }
}

}  // namespace bench
