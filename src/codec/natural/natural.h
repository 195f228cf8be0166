// SPDX-License-Identifier: Apache-2.0
#pragma once
// natural: each value as a power of two, one of its two neighbours at random so that the mean is the value
// (S. Horvath et al., "Natural compression for distributed deep learning", 2019).
//
// Layout   per block of kBlock values (the last one may be shorter), back to back:
//          u8 base, 1 .. 127 | len x u8 codes, sign << 7 | k
//          A code's value is 0 where k is 0, else the float whose biased exponent is base + k and whose fraction is 0;
//          with the sign, -0 included.
// Published with 9 bits, or with 8 and a fixed window of exponents. Here a block says where its window of 127 lies.
// base is above 1 only where values of 2 and more appear.
// Randomness is added to the fraction, and a carry moves the exponent: exactly unbiased, and in the mean
// |x - C(x)|^2 <= |x|^2 / 8. The exceptions: magnitudes beyond 2^127 are sent as that; those below 2^-125, or 2^-125 of
// the block's largest, may vanish.
// What is left is the value's own last bits: taken == sent + left holds bit for bit.
#include "base/bytes.h"
#include "codec/common/block.h"
#include "tithe/codec.h"

namespace tithe {
extern const Codec natural_codec;
}

namespace tithe::natural {

inline constexpr std::size_t kBlock = 1024;
inline constexpr std::size_t kBlockBytes = 1 + kBlock;
inline constexpr std::uint32_t kTopExponent = 254;  // of the largest power of two
inline constexpr std::uint32_t kWindow = 127;
inline constexpr int kFraction = 23;

inline std::size_t bound(const Settings&, std::size_t n) { return n + (n + kBlock - 1) / kBlock; }

// So that what the largest magnitude may be rounded up to is the last of the window.
inline std::uint32_t base_of(const block::Look& look) {
  const std::uint32_t top = std::min((look.peak >> kFraction) + 1, kTopExponent);
  return std::max(top, kWindow + 1) - kWindow;
}

// Exponent that value i of a block with this base is sent with; base: it is sent as 0.
inline std::uint32_t exponent(float v, std::uint64_t key, std::size_t i, std::uint32_t base) {
  const std::uint32_t draw = draw_half(key, static_cast<std::uint32_t>(i), kFraction);
  const std::uint32_t up = (block::magnitude_bits(v) + draw) >> kFraction;
  return std::max(std::min(up, kTopExponent), base);
}

inline float value(unsigned code, std::uint32_t base) {
  const unsigned k = code & 127U;
  const std::uint32_t size = k != 0 ? (base + k) << kFraction : 0;
  return std::bit_cast<float>(size | (code & 128U) << 24);
}

// Values [first, len) of a block that starts at `at` among all values.
void send_from(std::size_t first, std::size_t at, std::uint64_t key, const Carry& in, std::uint8_t* block);
// A block that holds a value that is not finite.
void send_nothing(const Carry& in, std::uint8_t* block);
// Values [first, n) of a decode.
void decode_from(std::size_t first, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // natural_simd.cc

}  // namespace tithe::natural
