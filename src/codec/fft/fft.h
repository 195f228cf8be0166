// SPDX-License-Identifier: Apache-2.0
#pragma once
// fft: sends the strongest frequencies of each block of values, as range-based floats (Wang et al., "FFT-based Gradient
// Sparsification for the Distributed Training of DNNs", HPDC 2020).
//
// A block has L = 2^l values; zeros extend a short last block to the next power of two, at least 16. Its spectrum has
// M = L / 2 bins of two floats each:
//
//   c[0] = (S(0), S(M))    c[f] = (Re S(f), Im S(f)), 0 < f < M    S(f) = 1/L sum over i of x[i] e^(-2 pi i f / L)
//
// so no coefficient is larger than the block's largest value. The k bins of most energy are sent, the lower bin first
// among equals. The energy is |c[f]|^2, for bin 0 half of that, since all other bins have a mirror image above M. A
// decoder adds the spectra of all workers and transforms once.
//
// The paper leaves open: the length (here the parameter `block`), the scale (here 1/L), and the unit of selection (here
// a bin, one bit in the bitmap). Different from the paper: fp32 instead of fp16 throughout; codes are rounded, not
// truncated; each block has its own range instead of one from the first steps; feedback is possible.
//
// Layout   u8 N | u8 m | u8 l | u8 0 | u32 k, then per block
//          u32 base | M bits, lowest first: which bins are sent | re and im of each, N bits as in
//          codec/shared/floats/range_codes.h, lowest bit first; padding bits are 0
// A shorter block of M' bins sends ceil(k M' / M) bins.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/bytes.h"
#include "base/fourier.h"
#include "codec/shared/common/bit_packing.h"
#include "codec/shared/floats/range_codes.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec fft_codec;
}

namespace tithe::fft {

using fourier::Complex;

inline constexpr std::size_t kHead = 8;
inline constexpr std::size_t kBlockHead = 4;
inline constexpr int kMinLog = 4;
inline constexpr int kMaxLog = fourier::kMaxLog + 1;

// The contents of a payload's head.
struct Head {
  range::Head code;
  int log;           // l
  std::size_t kept;  // k of a whole block

  std::size_t length() const { return std::size_t{1} << log; }
};

// A block of 2^log values; those from `values` on are zeros that extend it.
struct Block {
  std::size_t first;  // index of its first value
  std::size_t values;
  int log;
  std::size_t kept;
  std::size_t at;  // offset in the payload

  std::size_t bins() const { return std::size_t{1} << (log - 1); }
  std::size_t bitmap_bytes() const { return bins() / 8; }
  std::size_t bytes(const range::Head& code) const {
    return kBlockHead + bitmap_bytes() + bit_packing::bytes_for(2 * kept, code.width());
  }
  const fourier::Tables& tables() const { return fourier::tables(log - 1); }
};

inline std::size_t block_bytes(const Head& head) {
  return Block{0, 0, head.log, head.kept, 0}.bytes(head.code);
}
inline Block block_at(const Head& head, std::size_t n, std::size_t j) {
  const std::size_t first = j * head.length();
  const std::size_t values = std::min(head.length(), n - first);
  const int log = std::max(kMinLog, static_cast<int>(std::bit_width(values - 1)));
  const std::size_t share = ((head.kept << (log - 1)) + head.length() / 2 - 1) >> (head.log - 1);
  return {first, values, log, share, kHead + j * block_bytes(head)};
}
inline std::size_t blocks(const Head& head, std::size_t n) { return (n + head.length() - 1) / head.length(); }

// Before its transform, a block is scaled by the power of two of its largest value: energies neither overflow nor
// vanish. With values from 2^123 on, sums or residuals might overflow: such a block sends 2^-40 of its coefficients,
// and its largest values stay in the residual.
struct Scale {
  // Factor of the values before the transform, with 1 / (2 L) in it. 0: some value is not finite, and nothing is sent.
  float down = 0;
  float up = 0;  // factor of the transform's output that gives c

  static Scale of(std::uint32_t largest, int log) {
    if (largest > range::kLargest) return {};
    const int power = std::max(-110, static_cast<int>(largest >> 23) - 127);
    return {std::ldexp(1.0F, -power - log - 1), std::ldexp(1.0F, power >= 123 ? power - 40 : power)};
  }
};

// Working memory of the reference, for one block of 2^log values.
struct Room {
  Complex* z;            // bins
  Complex* c;            // bins
  std::uint32_t* order;  // bins

  static std::size_t bytes(int log) { return (2 * sizeof(Complex) + 4) << (log - 1); }
  static Room at(std::uint8_t* p, int log) {
    auto* z = reinterpret_cast<Complex*>(p);
    const std::size_t bins = std::size_t{1} << (log - 1);
    return {z, z + bins, reinterpret_cast<std::uint32_t*>(z + 2 * bins)};
  }
};

// The reference, for one block. encode_block returns whether all taken values are finite.
bool encode_block(const Head& head, const Block& block, const EncodeInput& in, const Room& room,
                  std::uint8_t* payload);
void decode_block(const Head& head, const Block& block, std::span<const ByteView> payloads, const Merge& how,
                  const Room& room, std::span<float> out);

// Working memory of the SIMD kernels: W blocks side by side, one per lane of the widest vectors. Aligned to 64 bytes.
struct Work {
  static constexpr std::size_t kMaxWidth = 16;
  float* z;         // [bins][re, im][W]
  float* energy;    // [bins][W]; later bitmaps: u32 [bins / 32][W]
  float* kept;      // [W][row]: the 2 k numbers that each block sends
  std::size_t row;  // 2 k plus a vector, at least

  static std::size_t row_of(const Head& head) {
    return (2 * head.kept + 2 * kMaxWidth - 1) / kMaxWidth * kMaxWidth;
  }
  static std::size_t bytes(const Head& head) {
    return 4 * kMaxWidth * (head.length() + head.length() / 2 + row_of(head));
  }
  static Work at(const Head& head, std::uint8_t* p) {
    auto* z = reinterpret_cast<float*>(p);
    float* energy = z + kMaxWidth * head.length();
    return {z, energy, energy + kMaxWidth * head.length() / 2, row_of(head)};
  }
};

// Both process whole blocks from the first on and return how many: the SIMD kernels all, side by side, the reference
// kernels none. The caller does the rest block by block. `scratch` has room for Work.
struct Kernels {
  std::size_t (*encode)(const Head& head, const EncodeInput& in, std::uint8_t* payload, std::uint8_t* scratch,
                        bool& finite);
  std::size_t (*decode)(const Head& head, std::span<const ByteView> payloads, const Merge& how,
                        std::span<float> out, std::uint8_t* scratch);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // fft_simd.cc

}  // namespace tithe::fft
