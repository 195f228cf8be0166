// SPDX-License-Identifier: Apache-2.0
#pragma once
// dct: of each chunk of 64 values the `keep` largest coefficients of its cosine transform, as bf16 (after DeMo: Peng,
// Quesnelle and Kingma 2024, here in one dimension). Ties go to the lower frequency. What is left is the chunk less the
// inverse transform of what is sent.
//
//   X[f] = sum over i of x[i] B[f][i]      B[f][i] = c cos(pi (2i + 1) f / 128), c = 1/8 for f = 0, sqrt(2)/8 else
//
// Every sum is in fp32 and in the order of its index, so that the bits are the same everywhere; B is computed when
// this file is compiled, from a series, and not by a library's cosine.
//
// Layout   u8 keep, then per chunk (the last one is filled up with zeros): u8 frequency[keep] | bf16 coefficient[keep]
#include <array>
#include <cstdint>

#include "tithe/codec.h"

namespace tithe {
extern const Codec dct_codec;
}

namespace tithe::dct {

inline constexpr std::size_t kChunk = 64;
using Chunk = std::array<float, kChunk>;
extern const std::array<Chunk, kChunk> kBasis;   // [frequency][place]
extern const std::array<Chunk, kChunk> kTurned;  // [place][frequency]

// A chunk with a magnitude from here on sends a 64th of its coefficients: neither they nor what is left overflow.
inline constexpr std::uint32_t kNearlyTooLarge = 0x7d800000U;  // 2^124
inline constexpr float kShrink = 0x1p-6F;

// Chunk c of a payload: its frequencies, then its coefficients.
inline std::size_t at(std::size_t c, std::size_t k) { return 1 + 3 * k * c; }

// Writes the k largest coefficients of a chunk.
void write(const Chunk& spectrum, std::size_t k, std::uint8_t* frequency);

// Both do chunks from the first on, and return how many: all whole ones by vectors, none by the reference; the rest is
// done value by value. `finite` becomes false where some taken value is not.
struct Kernels {
  std::size_t (*encode)(const Carry& in, std::size_t k, std::uint8_t* out, bool& finite);
  std::size_t (*decode)(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // dct_simd.cc

}  // namespace tithe::dct
