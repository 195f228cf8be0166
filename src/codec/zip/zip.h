// SPDX-License-Identifier: Apache-2.0
#pragma once
// zip: lossless compression of fp32 values, and of bf16 values stored as fp32. The redundancy is in the exponents:
// those of adjacent values differ little.
//
//   block    kBlock values. A value is split into its exponent, one byte (7 bits of the fraction, then the sign), and
//            the lower 16 bits
//   window   the 2^w - 1 adjacent exponents that cover most of the block; w is 2, 3 or 4, whichever is shortest. An
//            exponent is sent as its index in the window, in w bits. One further code is an escape: the exponent
//            follows as a byte, in order. If no window makes the block shorter, exponents are sent uncompressed
//   lower    the lower 16 bits are not sent if they are 0 in the whole block, as for bf16 values under bf16 autocast
//   zeros    a block of +0 only has no body
//
// An entropy coder would save another 3 to 6 %, and takes four times as long (lab/results/lossless.md).
//
// All bits are restored: -0, subnormals, NaN payloads. A NaN or Inf is reported as by any codec.
//
// Layout   head per block, then the body of each block
//          head   u8 width of codes, + 16 if the lower bits are 0 | u8 window's first exponent | u16 escapes
//          body   w planes of codes, ceil(len / 8) bytes each, value i at bit i; or, for a width of 8, exponents
//                 | escaped exponents | len bytes of fraction and sign | len u16 of lower bits
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec zip_codec;
}

namespace tithe::zip {

inline constexpr std::size_t kBlock = 1024;
inline constexpr std::size_t kHead = 4;
inline constexpr unsigned kNone = 0, kMinWidth = 2, kMaxWidth = 4, kWhole = 8;  // widths of a code
inline constexpr unsigned kNoLower = 16;
inline constexpr unsigned kInf = 255;  // the exponent of NaN and Inf, the largest

inline std::size_t blocks_of(std::size_t n) { return (n + kBlock - 1) / kBlock; }
inline unsigned span_of(unsigned width) {
  return (1U << width) - 1;
}  // exponents in a window; as a code: an escape
inline std::size_t plane_bytes(std::size_t len) { return (len + 7) / 8; }

struct Head {
  unsigned width = kNone;
  bool no_lower = false;
  unsigned first = 0;
  std::size_t escapes = 0;

  static Head read(const std::uint8_t* p) {
    return {p[0] & 15U, (p[0] & kNoLower) != 0, p[1], wire::get<std::uint16_t>(p + 2)};
  }
  void write(std::uint8_t* p) const {
    p[0] = static_cast<std::uint8_t>(width | (no_lower ? kNoLower : 0U));
    p[1] = static_cast<std::uint8_t>(first);
    wire::put(p + 2, static_cast<std::uint16_t>(escapes));
  }
  std::size_t code_bytes(std::size_t len) const { return width == kWhole ? len : width * plane_bytes(len); }
  std::size_t body(std::size_t len) const {
    return width == kNone ? 0 : code_bytes(len) + escapes + len + (no_lower ? 0 : 2 * len);
  }
};

// The parts of a value's bits, and their inverse.
inline std::uint8_t exponent_of(std::uint32_t bits) { return static_cast<std::uint8_t>(bits >> 23); }
inline std::uint8_t middle_of(std::uint32_t bits) {
  return static_cast<std::uint8_t>((bits >> 15 & 0xfeU) | bits >> 31);
}
inline std::uint16_t lower_of(std::uint32_t bits) { return static_cast<std::uint16_t>(bits); }
inline std::uint32_t joined(std::uint32_t exponent, std::uint32_t middle, std::uint32_t lower) {
  return (middle & 1U) << 31 | exponent << 23 | (middle >> 1) << 16 | lower;
}

// A histogram of a block's exponents: counts from the largest exponent down, until all but 1 / kRest of the values
// are counted, and at most kSeen exponents; and the counts of exponents below 3, 7 and 15 (`low`, indexed by width -
// kMinWidth).
inline constexpr std::size_t kSeen = 24;
inline constexpr std::size_t kRest = 64;  // the reciprocal of the uncounted share
struct Counts {
  unsigned largest = 0;
  std::size_t seen = 0;
  std::array<std::size_t, kSeen> near{};
  std::array<std::size_t, kMaxWidth - kMinWidth + 1> low{};
};
// count(e): the number of the block's values with exponent e.
template <typename Count>
void see(Counts& counts, std::size_t len, const Count& count) {
  for (std::size_t rest = len; rest > len / kRest && counts.seen < kSeen; ++counts.seen) {
    counts.near[counts.seen] = count(counts.largest - static_cast<unsigned>(counts.seen));
    rest -= counts.near[counts.seen];
  }
}

// The head with the smallest body for a block of this length, without `no_lower`: among windows that start at
// exponent 0 or end at a counted exponent. Ties are resolved by width, then 0 first, then from the largest exponent
// down.
inline Head best_of(const Counts& counts, std::size_t len) {
  Head best{.width = kWhole};
  std::size_t least = len;
  for (unsigned width = kMinWidth; width <= kMaxWidth; ++width) {
    const unsigned span = span_of(width);
    const auto offer = [&](unsigned first, std::size_t inside) {
      const std::size_t size = width * plane_bytes(len) + len - inside;
      if (size >= least || first + span > kInf + 1) return;
      least = size;
      best = {.width = width, .first = first, .escapes = len - inside};
    };
    offer(0, counts.low[width - kMinWidth]);
    std::size_t inside = 0;
    for (std::size_t k = 0; k < counts.seen; ++k) {
      inside += counts.near[k] - (k < span ? 0 : counts.near[k - span]);
      offer(counts.largest - static_cast<unsigned>(k), inside);
    }
  }
  return best;
}

// The reference, for a block of any length. encode_block writes head and body, reports in `finite` a value that is not,
// and returns the bytes of the body.
std::size_t encode_block(const EncodeInput& in, std::uint8_t* head, std::uint8_t* body, bool& finite);

// The position of a payload's next block, and the payload's end.
struct Cursor {
  const std::uint8_t* head;
  const std::uint8_t* body;
  const std::uint8_t* end;
  void skip(std::size_t len) {
    body += Head::read(head).body(len);
    head += kHead;
  }
};
// Merges the cursors' blocks into `out`, which has the block's length, and advances the cursors. `how` covers this
// block.
void decode_block(std::span<Cursor> from, const Merge& how, std::span<float> out);

struct Kernels {
  // As above, but only for blocks of kBlock values. ahead: the gradient values to prefetch. non_temporal: `out` will
  // not be read soon.
  std::size_t (*encode)(const EncodeInput& in, const float* ahead, std::uint8_t* head, std::uint8_t* body,
                        bool& finite);
  void (*decode)(std::span<Cursor> from, const Merge& how, std::span<float> out, bool non_temporal);
  // The number of escapes among the codes of kBlock values, `width` bits each.
  std::size_t (*escapes)(const std::uint8_t* codes, unsigned width);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // zip_simd.cc

}  // namespace tithe::zip
