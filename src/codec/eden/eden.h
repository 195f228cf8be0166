// SPDX-License-Identifier: Apache-2.0
#pragma once
// eden: a random rotation makes the values of a block nearly normal; each is rounded to one of 2^bits levels suited
// to a normal distribution (3 levels with 1.6 bits), and the block has one scale (Vargaftik et al., "DRIVE", NeurIPS
// 2021, and "EDEN", ICML 2022).
//
//   rotate   codec/shared/rotation/rotation.h, with signs that are equal on all ranks and new in each round
//   round    to the nearest level. Levels and the borders between them are small integers (kLevels), with an error
//            within 1 % of the minimum (Lloyd and Max). A rotated value is first rounded to 1/2048 standard deviation
//   scale    the value of one unit of the levels, rounded to a bf16. scale=fit: s = <r, q> / <q, q>, the least squared
//            error, for use with feedback. scale=unbiased: s = |r|^2 / <r, q>, as published, for use without. r is the
//            rotated block, q its levels
//   decode   sums scale times level over all payloads, and rotates the sum back once
//
// A single payload decodes to scale times integers, which is exact in float: scales have 8 bits and sums of levels
// 16. So the values of one payload do not depend on the order of additions.
//
// A block has kBlock values. The remaining values form blocks of half that width, a quarter and so on; the last one
// is extended with zeros if at most a quarter of it is missing (Block::at). Up to kMaxRaw values at the end are sent
// uncompressed. A block whose values are all below kDust is sent as zeros. A block with a norm above kLarge sends
// 2^-40 of its values, so that neither values nor residuals overflow.
//
// Differences from the paper: feedback and the scale suited to it; blocks instead of whole tensors; the rounding to
// steps, which changes <r, q> by less than 2^-11 of it.
//
// Layout   u64 key of the signs | u8 bits, 16 for 1.6 | u8 0, then per block
//          bf16 scale | codes (put_code), or values as f32
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "codec/shared/rotation/rotation.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec eden_codec;
}

namespace tithe::eden {

inline constexpr std::size_t kBlock = 1024;
inline constexpr std::size_t kMinWidth = 8;  // minimum width of a block, so that codes fill whole bytes
inline constexpr std::size_t kMaxRaw = 4;
inline constexpr std::size_t kHead = 10;
inline constexpr std::size_t kScaleBytes = 2;

inline constexpr float kDust = 0x1p-100F;
// Limits for the norm of a block that is sent unshrunk. With a fitted scale the decoded norm is below the block's norm;
// with an unbiased scale it may be larger.
inline constexpr double kLarge = 0x1.8p127;
inline constexpr double kLargeUnbiased = 0x1p100;
inline constexpr double kShrink = 0x1p-40;
// The smallest valid scale besides 0, and the largest scale with which no codes can overflow.
inline constexpr float kMinScale = 0x1p-126F;
inline constexpr float kSafeScale = 0x1p112F;
// Sums of squares in this range need no scaling: they neither overflow in float nor lose squares to underflow.
inline constexpr float kMinEnergy = 0x1p-80F;
inline constexpr float kMaxEnergy = 0x1p120F;

// The value of `bits` for base-3 digits, five per byte, which is 1.6 bits per code.
inline constexpr unsigned kThree = 16;
inline constexpr std::array<std::uint8_t, 6> kPowers = {1, 3, 9, 27, 81, 243};  // of 3

// A code is the index of the level's magnitude, with a sign bit above it. With three levels: 0, 1, and 2 for -1.
struct Levels {
  unsigned bits;
  std::array<std::uint8_t, 8> size;  // of the levels
  std::array<std::uint8_t, 7> from;  // the first cell (64 steps) of the next level; 255: there is none

  unsigned number(int cell) const {
    unsigned k = 0;
    for (const int border : from) k += cell >= border ? 1 : 0;
    return k;
  }
  unsigned code(int steps) const {
    // Cells beyond 254 have the largest level: 255 is no border.
    const unsigned k = number(std::min((steps < 0 ? ~steps : steps) / 64, 254));
    if (bits == kThree) return steps < 0 ? 2 * k : k;
    return k | (steps < 0 ? 1U << (bits - 1) : 0U);
  }
  int level(unsigned code) const {
    if (bits == kThree) return code == 2 ? -1 : static_cast<int>(code);
    const unsigned minus = 1U << (bits - 1);
    return (code & minus) != 0 ? -size[code & (minus - 1)] : size[code];
  }
  // The bytes of a block's codes.
  constexpr std::size_t bytes(std::size_t width) const {
    return bits == kThree ? (width + 4) / 5 : width * bits / 8;
  }
};
inline constexpr std::array<Levels, 5> kLevels = {{
    {1, {1}, {255, 255, 255, 255, 255, 255, 255}},
    {kThree, {0, 1}, {20, 255, 255, 255, 255, 255, 255}},
    {2, {3, 10}, {31, 255, 255, 255, 255, 255, 255}},
    {3, {3, 9, 16, 26}, {16, 33, 56, 255, 255, 255, 255}},
    {4, {2, 6, 10, 15, 20, 26, 33, 43}, {8, 16, 25, 35, 46, 59, 76}},
}};

// An upper bound for the expected loss of one round, over the random signs, for any block. A rotated value z, in
// standard deviations, is a sum of the block's values with random signs: E z^2 = 1, E z^4 <= 3, E z^6 <= 15, as for a
// normal variable. The scale of least error loses no more than any other s, hence at most E (z - s q)^2. For the s
// below, (z - s q)^2 <= a + b z^2 + c z^4 + d z^6 everywhere, so the mean is at most a + b + 3 c + 15 d. One bit
// loses 1 - (E |z|)^2, and E |z| >= 1 / sqrt(2) (Szarek 1976). Normal values lose 0.364, 0.190, 0.118, 0.0346, 0.0096.
struct Majorant {
  double s, a, b, c, d;
  constexpr double mean() const { return a + b + 3 * c + 15 * d; }
};
inline constexpr std::array<Majorant, 4> kMajorants = {
    {{1.25, 0.50192, -0.31682, 0.08323, 0},
     {0.14911, 0.2004, 0.07583, 0, 0.00194},
     {0.08319, 0.06246, 0.02184, 0.0033, 0.00055},
     {0.06255, 0.02146, 0.00523, 0, 0.00041}}};  // from 1.6 bits on
inline constexpr double kLosesOneBit = 0.5;

// A rotated value in steps of 1/2048 standard deviation, limited to +-16 standard deviations.
inline constexpr float kSteps = 2048;
inline int steps_of(float rotated, float steps_per_unit) {
  return static_cast<int>(std::clamp(std::nearbyint(rotated * steps_per_unit), -32768.0F, 32767.0F));
}

// Values with a common scale. width 0: no scale, the values are sent uncompressed.
struct Block {
  std::size_t first;  // index of its first value in the chunk
  std::size_t values;
  std::size_t width;  // the values are padded with zeros to this width

  static Block at(std::size_t first, std::size_t n) {
    const std::size_t remain = n - first;
    if (remain >= kBlock) return {first, kBlock, kBlock};
    if (remain <= kMaxRaw) return {first, remain, 0};
    const std::size_t above = std::max(kMinWidth, std::bit_ceil(remain));
    const std::size_t width = above == kMinWidth || 4 * remain > 3 * above ? above : above / 2;
    return {first, std::min(remain, width), width};
  }
  std::size_t bytes(const Levels& levels) const {
    return width == 0 ? 4 * values : kScaleBytes + levels.bytes(width);
  }
};

// Calls use(block, offset in the payload) for each block of n values, except the first `done` blocks of kBlock
// values; returns the payload's bytes.
template <typename Use>
std::size_t each_block(const Levels& levels, std::size_t n, std::size_t done, const Use& use) {
  std::size_t offset = kHead + done * Block{0, kBlock, kBlock}.bytes(levels);
  for (std::size_t first = done * kBlock; first < n;) {
    const Block block = Block::at(first, n);
    use(block, offset);
    first += block.values;
    offset += block.bytes(levels);
  }
  return offset;
}

// Codes are split into fields of 4, 2 or 1 bits; codes of 3 bits into fields of 2 bits, followed by fields of 1 bit.
// The fields of a block of w codes take B = w f / 8 bytes: the field of code i is in byte i mod B, from bit f (i / B)
// on. So vectors of any size combine codes that are B apart, without moving bytes between lanes. Base-3 digits are
// arranged likewise: the digit of code i is in byte i mod B, times 3^(i / B), with B = ceil(w / 5).
template <typename Use>
void each_field(unsigned bits, std::size_t width, const Use& use) {
  const unsigned low = bits == 3 ? 2 : bits;
  use(0U, low, std::size_t{0});
  if (bits == 3) use(2U, 1U, width * 2 / 8);
}
// All bits of the block's codes must be 0 before.
inline void put_code(std::uint8_t* codes, const Levels& levels, std::size_t width, std::size_t i,
                     unsigned code) {
  if (levels.bits == kThree) {
    const std::size_t bytes = levels.bytes(width);
    codes[i % bytes] = static_cast<std::uint8_t>(codes[i % bytes] + code * kPowers[i / bytes]);
    return;
  }
  each_field(levels.bits, width, [&](unsigned from, unsigned field, std::size_t offset) {
    const std::size_t bytes = width * field / 8;
    std::uint8_t& byte = codes[offset + i % bytes];
    byte = static_cast<std::uint8_t>(byte | (code >> from & ((1U << field) - 1)) << (field * (i / bytes)));
  });
}
inline unsigned get_code(const std::uint8_t* codes, const Levels& levels, std::size_t width, std::size_t i) {
  if (levels.bits == kThree) {
    const std::size_t bytes = levels.bytes(width);
    return codes[i % bytes] / kPowers[i / bytes] % 3;
  }
  unsigned code = 0;
  each_field(levels.bits, width, [&](unsigned from, unsigned field, std::size_t offset) {
    const std::size_t bytes = width * field / 8;
    code |= (codes[offset + i % bytes] >> (field * (i / bytes)) & ((1U << field) - 1)) << from;
  });
  return code;
}

// The settings and keys that all blocks of a payload share.
struct Coder {
  Levels levels;
  bool unbiased;
  std::uint64_t key;  // of the signs
  std::uint64_t own;  // of the rounding of unbiased scales
};

// The integers that determine the scale: <r, q> in steps, and <q, q>.
struct Products {
  std::int64_t with_values = 0;
  std::int64_t with_itself = 0;
};
// The scale as sent, for a block with this norm.
std::uint16_t scale_of(const Coder& coder, const Block& block, double norm, const Products& products);

// The reference, for one block with a scale; `at` and `offset` are the block's position in the payload. `in` covers
// only this block, `out` the whole chunk. encode_block returns whether all taken values are finite.
bool encode_block(const Coder& coder, const Block& block, const EncodeInput& in, std::uint8_t* at);
void decode_block(const Coder& coder, const Block& block, std::size_t offset,
                  std::span<const ByteView> payloads, const Merge& how, std::span<float> out);

// Both process whole blocks from the first on and return how many: the SIMD kernels all, the reference kernels none.
// The caller does the rest block by block. Sets `finite` to false if a taken value is not finite.
struct Kernels {
  std::size_t (*encode)(const Coder& coder, const EncodeInput& in, std::uint8_t* out, bool& finite);
  std::size_t (*decode)(const Coder& coder, std::span<const ByteView> payloads, const Merge& how,
                        std::span<float> out);
};
extern const char* const kCudaText;  // eden.cu
extern const Kernels kReference;
extern const Kernels kSimd;  // eden_simd.cc

}  // namespace tithe::eden
