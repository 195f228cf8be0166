// SPDX-License-Identifier: Apache-2.0
#pragma once
// inceptionn: 0, 8, 16 or 32 bits for a value, depending on its magnitude, plus a 2-bit tag (Li et al., "A
// Network-Centric Hardware/Algorithm Co-Design to Accelerate Distributed Training", MICRO 2018, Algorithms 2, 3).
//
// The error bound is 2^-b. A value is truncated toward zero and sent by the class of its magnitude:
//
//   tag  from       below       sent as
//   0    0          2^-b        no bytes; decodes to +0
//   1    2^-b       2^middle    sign and 7 bits:   q = floor(magnitude / unit), unit 2^(middle - 7)
//   2    2^middle   2^top       sign and 15 bits:  q = floor(magnitude / unit), unit 2^(top - 15)
//   3    2^top                  its 32 bits
//
//   mode=strict    (default) middle = min(-floor(b / 2), 7 - b), top = min(0, 15 - b): no error exceeds the bound.
//                  Up to b = 14 these are the paper's classes, and the payload has the paper's size.
//   mode=literal   as in the paper: middle = -floor(b / 2), top = 0, units 2^-7 and 2^-15 for every b. This breaks the
//                  bound for b > 7: the 7-bit class is off by up to 2^-7, twice the bound for b = 8 and eight times for
//                  b = 10. In that class all values below 2^-7 get q = 0, for which the paper's decoder ("the first 1
//                  of q") is not defined; here q = 0 decodes to the zero of that sign.
//
// Truncation only clears low bits, so taken == sent + residual_out holds bit for bit in both modes.
//
// Layout   u8 mode: 0 strict, 1 literal | u8 layout: 0 split, 1 burst | u8 b | u8 0, then
//   split   ceil(n / 8) bytes: bit 0 of each tag | as many: bit 1 of each tag | per block of 1024 values: its bytes,
//           its 16-bit words, its 32-bit words, each in the order of the values. For processors and GPUs: a popcount of
//           the tags gives the offset of any block
//   burst   ceil(n / 1024) x u16: the bytes of each block of 1024 values | per group of 8 values: u16 tags, value j's
//           in bits 2j and 2j + 1, then the group's bytes and words in the order of the values. For network cards: a
//           group is one 256-bit cycle. The table of block sizes lets processors read several blocks at a time
// The paper leaves open the bit order, short groups and the length. Here bits fill from the lowest, tags past the last
// value are 0, and the head holds mode, layout and b.
#include <array>
#include <cstdint>

#include "codec/shared/floats/size_classes.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec inceptionn_codec;
}

namespace tithe::inceptionn {

inline constexpr std::size_t kHead = 4;
inline constexpr std::size_t kBlock = 1024;
inline constexpr std::size_t kGroup = 8;
inline constexpr std::size_t kMaxBlockBytes = kBlock / kGroup * (2 + 4 * kGroup);  // in a burst payload
inline constexpr int kMaxB = 100;  // every unit is a normal float

enum Layout : std::uint8_t { kSplit, kBurst };

struct Head {
  Mode mode;
  Layout layout;
  std::uint8_t b;
};

inline Classes classes(const Head& head) { return classes(head.mode, head.b); }

inline std::size_t blocks(std::size_t n) { return (n + kBlock - 1) / kBlock; }
// Bytes of one of the two tag planes.
inline std::size_t plane_bytes(std::size_t n) { return (n + 7) / 8; }
inline std::size_t bound(const Settings&, std::size_t n) {
  return kHead + 2 * blocks(n) + 2 * plane_bytes(n) + 4 * n;
}

inline unsigned bit_at(const std::uint8_t* plane, std::size_t i) { return plane[i / 8] >> (i % 8) & 1U; }

// Value bytes of four values, by their tags.
inline constexpr auto kQuadBytes = [] {
  std::array<std::uint8_t, 256> bytes{};
  for (unsigned tags = 0; tags < 256; ++tags)
    for (unsigned j = 0; j < 8; j += 2)
      bytes[tags] = static_cast<std::uint8_t>(bytes[tags] + kTagBytes[tags >> j & 3U]);
  return bytes;
}();
// Bytes of a group in a burst payload, by its tags.
inline std::size_t group_bytes(unsigned tags) { return 2U + kQuadBytes[tags & 255U] + kQuadBytes[tags >> 8]; }

// The tag planes and the values of a split payload.
struct Split {
  Split() = default;
  Split(const std::uint8_t* payload, std::size_t n)
      : low(payload + kHead), high(low + plane_bytes(n)), values(high + plane_bytes(n)) {}
  unsigned tag(std::size_t i) const { return bit_at(low, i) | bit_at(high, i) << 1; }
  const std::uint8_t* low = nullptr;
  const std::uint8_t* high = nullptr;
  const std::uint8_t* values = nullptr;
};

struct Kernels {
  // Bytes of the values with these tags: one per bit of low, two per bit of high, one more where both are set.
  std::size_t (*value_bytes)(const std::uint8_t* low, const std::uint8_t* high, std::size_t plane);
  Encoded (*encode_split)(const Head& head, const EncodeInput& in, std::uint8_t* out);
  Encoded (*encode_burst)(const Head& head, const EncodeInput& in, std::uint8_t* out);
  // One checked payload or more, all in the same layout. lengths: with a single payload the bytes of each of its
  // groups, else nullptr.
  void (*decode_split)(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
  void (*decode_burst)(std::span<const ByteView> payloads, const Merge& how, std::span<float> out,
                       const std::uint8_t* lengths);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // inceptionn_simd.cc; two of its kernels have files of their own:
Encoded encode_burst_simd(const Head& head, const EncodeInput& in, std::uint8_t* out);
void decode_burst_simd(std::span<const ByteView> payloads, const Merge& how, std::span<float> out,
                       const std::uint8_t* lengths);
// The reference encode of values [first, in.n) as burst groups, written to `to`; first is a multiple of kGroup.
Encoded encode_groups(const Classes& c, const EncodeInput& in, std::size_t first, std::uint8_t* to);

}  // namespace tithe::inceptionn
