// SPDX-License-Identifier: Apache-2.0
#pragma once
// nuqsgd: qsgd with the levels 0, 2^-(K - 1), ..., 1/2, 1 times a bucket's norm: closer together where most values
// are (A. Ramezani-Kebrya et al., JMLR 2021).
//
// Layout   codec/levels/buckets.h; a code is sign << (bits - 1) | k, its value 0 where k is 0, else 2^(k - K) * norm,
//          rounded to fp32; K = 2^(bits - 1) - 1
// Between two levels the draw decides so that the mean is the value, to within 2^-23 of the norm.
#include "codec/levels/buckets.h"
#include "tithe/codec.h"

namespace tithe {
extern const Codec nuqsgd_codec;
}

namespace tithe::nuqsgd {

using buckets::Shape;

inline constexpr int kFraction = 23;
inline constexpr std::uint32_t kOne = 127U << kFraction;  // the bits of 1.0F

// The bits of the lowest level but 0, as a share of the norm.
inline std::uint32_t least_of(std::uint32_t most) { return kOne - ((most - 1) << kFraction); }

// k for a magnitude of `share` of the norm, 0 .. 1; draw: 23 random bits.
inline unsigned level_of(float share, std::uint32_t most, std::uint32_t draw) {
  const auto bits = std::bit_cast<std::uint32_t>(share);
  // A float's fraction says how far it is from one power of two to the next: a carry moves to the next.
  if (bits >= least_of(most)) return ((bits - least_of(most) + draw) >> kFraction) + 1;
  const float between = std::ldexp(share, static_cast<int>(most) - 1 + kFraction);
  return static_cast<float>(draw) < between ? 1 : 0;
}

inline float value(unsigned code, const Shape& shape, float norm) {
  const unsigned k = code & shape.steps();
  const float size = k == 0 ? 0.0F : std::ldexp(norm, static_cast<int>(k) - static_cast<int>(shape.steps()));
  return code >> (shape.bits - 1) != 0 ? -size : size;
}

// Values [first, len) of a bucket whose codes are 0 from there on; `at` is where it starts among all values.
void send_from(std::size_t first, std::size_t at, std::uint64_t key, const Shape& shape, float norm,
               const Carry& in, std::uint8_t* codes);
// Values [first, n) of a decode.
void decode_from(std::size_t first, const Shape& shape, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // nuqsgd_simd.cc

}  // namespace tithe::nuqsgd
