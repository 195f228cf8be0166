// SPDX-License-Identifier: Apache-2.0
#pragma once
// dct: the `keep` largest cosine coefficients of each chunk of 64 values, as bf16 (after DeMo: Peng, Quesnelle and
// Kingma 2024, here in one dimension). The lower frequency wins among equals. residual_out is the chunk minus the
// inverse transform of the sent coefficients.
//
//   X[f] = sum over i of x[i] B[f][i]      B[f][i] = c cos(pi (2i + 1) f / 128), c = 1/8 for f = 0, sqrt(2)/8 else
//
// All sums are in fp32 and in index order, so the bits are the same everywhere. B is computed at compile time from a
// series, not by a library's cosine.
//
// Layout   u8 keep, then per chunk (zeros extend the last one): u8 frequency[keep] | bf16 coefficient[keep]
#include <array>
#include <cstdint>

#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec dct_codec;
}

namespace tithe::dct {

inline constexpr std::size_t kChunk = 64;
using Chunk = std::array<float, kChunk>;
extern const std::array<Chunk, kChunk> kBasis;       // [frequency][index]
extern const std::array<Chunk, kChunk> kTransposed;  // [index][frequency]

// A chunk with a magnitude of at least this (as bits) sends its coefficients times kShrink: neither they nor
// residual_out overflow.
inline constexpr std::uint32_t kNearlyTooLarge = 0x7d800000U;  // 2^124
inline constexpr float kShrink = 0x1p-6F;

// Offset of chunk c in a payload: k frequencies, then k coefficients.
inline std::size_t at(std::size_t c, std::size_t k) { return 1 + 3 * k * c; }

// Writes the k largest coefficients of a chunk: frequencies, then values.
void write(const Chunk& spectrum, std::size_t k, std::uint8_t* frequency);

// Both process chunks from the first on and return how many: the SIMD kernels all whole chunks, the reference kernels
// none. The caller does the rest value by value. Sets `finite` to false if a taken value is not finite.
struct Kernels {
  std::size_t (*encode)(const Carry& in, std::size_t k, std::uint8_t* out, bool& finite);
  std::size_t (*decode)(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // dct_simd.cc

}  // namespace tithe::dct
