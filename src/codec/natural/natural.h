// SPDX-License-Identifier: Apache-2.0
#pragma once
// natural: rounds each value at random to one of the two nearest powers of two, so that the mean is the value (S.
// Horvath et al., "Natural compression for distributed deep learning", 2019).
//
// Layout   per block of kBlock values (the last one may be shorter), back to back:
//          u8 base, 1 .. 127 | len x u8 codes, sign << 7 | k
//          k = 0 stands for 0, other codes for the float with biased exponent base + k and fraction 0; with the sign,
//          so -0 is possible.
// Published with 9 bits, or with 8 and a fixed window of exponents. Here each block has its own window of 127
// exponents. base is above 1 only in blocks with magnitudes of 2 or more.
// A random number is added to the fraction, and a carry increments the exponent: exactly unbiased, and on average
// |x - C(x)|^2 <= |x|^2 / 8. Exceptions: magnitudes above 2^127 are sent as 2^127; magnitudes below 2^-125, or below
// 2^-125 of the block's largest, may become 0.
// The residual is made of the value's own low bits: taken == sent + residual_out holds bit for bit.
#include "base/bytes.h"
#include "codec/shared/common/block.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec natural_codec;
}

namespace tithe::natural {

inline constexpr std::size_t kBlock = 1024;
inline constexpr std::size_t kBlockBytes = 1 + kBlock;
inline constexpr std::uint32_t kTopExponent = 254;  // biased exponent of the largest power of two
inline constexpr std::uint32_t kWindow = 127;
inline constexpr int kFraction = 23;

inline std::size_t bound(const Settings&, std::size_t n) { return n + (n + kBlock - 1) / kBlock; }

// The base for which the window ends at the power of two that the largest magnitude may be rounded up to.
inline std::uint32_t base_of(const block::Stats& stats) {
  const std::uint32_t top = std::min((stats.peak >> kFraction) + 1, kTopExponent);
  return std::max(top, kWindow + 1) - kWindow;
}

// The biased exponent that value i is rounded to, in a block with this base; `base` itself means 0.
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

// Encodes values [first, len) of a block; `at`: index of the block's first value.
void send_from(std::size_t first, std::size_t at, std::uint64_t key, const Carry& in, std::uint8_t* block);
// Writes a block that holds a value that is not finite: codes 0, all values left whole.
void send_nothing(const Carry& in, std::uint8_t* block);
// Decodes values [first, n).
void decode_from(std::size_t first, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // natural_simd.cc

}  // namespace tithe::natural
