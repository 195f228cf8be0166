// SPDX-License-Identifier: Apache-2.0
#pragma once
// nuqsgd: qsgd with the levels 0, 2^-(K - 1), ..., 1/2, 1 times a bucket's norm: closer together near 0, where most
// values are (A. Ramezani-Kebrya et al., JMLR 2021).
//
// Layout   codec/shared/levels/buckets.h; a code is sign << (bits - 1) | k and stands for 0 if k is 0, else for
//          2^(k - K) * norm, rounded to fp32; K = 2^(bits - 1) - 1
// Rounding between two levels is random; the mean is the value, to within 2^-23 of the norm.
#include "codec/shared/levels/buckets.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec nuqsgd_codec;
}

namespace tithe::nuqsgd {

using buckets::LevelFormat;

inline constexpr int kFraction = 23;
inline constexpr std::uint32_t kOne = 127U << kFraction;  // the bits of 1.0F

// The bits of the smallest level above 0, as a fraction of the norm. most: K.
inline std::uint32_t least_of(std::uint32_t most) { return kOne - ((most - 1) << kFraction); }

// k for a magnitude of share * norm, share in 0 .. 1. most: K; draw: 23 random bits.
inline unsigned level_of(float share, std::uint32_t most, std::uint32_t draw) {
  const auto bits = std::bit_cast<std::uint32_t>(share);
  // A float's fraction is its position between two powers of two; adding the draw may carry to the next exponent.
  if (bits >= least_of(most)) return ((bits - least_of(most) + draw) >> kFraction) + 1;
  const float between = std::ldexp(share, static_cast<int>(most) - 1 + kFraction);
  return static_cast<float>(draw) < between ? 1 : 0;
}

inline float value(unsigned code, const LevelFormat& format, float norm) {
  const unsigned k = code & format.steps();
  const float size = k == 0 ? 0.0F : std::ldexp(norm, static_cast<int>(k) - static_cast<int>(format.steps()));
  return code >> (format.bits - 1) != 0 ? -size : size;
}

// Encodes values [first, len) of a bucket; the bytes of their codes are 0 before. `at`: index of the bucket's first
// value.
void send_from(std::size_t first, std::size_t at, std::uint64_t key, const LevelFormat& format, float norm,
               const Carry& in, std::uint8_t* codes);
// Decodes values [first, n).
void decode_from(std::size_t first, const LevelFormat& format, std::span<const ByteView> payloads,
                 const Merge& how, std::span<float> out);

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // nuqsgd_simd.cc

}  // namespace tithe::nuqsgd
