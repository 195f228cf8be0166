// SPDX-License-Identifier: Apache-2.0
#pragma once
// fft: of each block of values the strongest frequencies, as range-based floats (Wang et al., "FFT-based Gradient
// Sparsification for the Distributed Training of DNNs", HPDC 2020).
//
// A block has L = 2^l values; what remains at the end is filled up with zeros to the next power of two, at least 16.
// Its spectrum has M = L / 2 bins of two floats each:
//
//   c[0] = (S(0), S(M))    c[f] = (Re S(f), Im S(f)), 0 < f < M    S(f) = 1/L sum over i of x[i] e^(-2 pi i f / L)
//
// so that no coefficient is larger than the block's largest value. The k bins of most energy are sent (among equals the
// lower ones): |c[f]|^2, half of it for bin 0, since the bins above M mirror all others. A reader adds the
// spectra of all workers and transforms once.
//
// What the paper leaves open, and what stands here: which length (L a parameter), which scale (1/L), which unit is
// chosen and has a bit in the bitmap (a bin). Not as in the paper: fp32 all the way and not fp16; codes are rounded and
// not cut; each block has a range of its own and not one from the first steps. What is not sent can be fed back.
//
// Layout   u8 N | u8 m | u8 l | u8 0 | u32 k, then per block
//          u32 base | M bits, lowest first: which bins are sent | re and im of each, N bits, as
//          codec/floats/range_codes.h has them; the bits left in the last byte are 0
// A shorter block of M' bins sends ceil(k M' / M) of them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/bytes.h"
#include "base/fourier.h"
#include "codec/floats/range_codes.h"
#include "tithe/codec.h"

namespace tithe {
extern const Codec fft_codec;
}

namespace tithe::fft {

using fourier::Complex;

inline constexpr std::size_t kHead = 8;
inline constexpr std::size_t kBlockHead = 4;
inline constexpr int kLeastLog = 4;
inline constexpr int kMostLog = fourier::kMostLog + 1;

// What a payload's head says.
struct Shape {
  range::Head code;
  int log;           // l
  std::size_t kept;  // k of a whole block

  std::size_t length() const { return std::size_t{1} << log; }
};

// A block of 2^log values, some of them behind the last one.
struct Block {
  std::size_t first;
  std::size_t values;
  int log;
  std::size_t kept;
  std::size_t at;  // byte of the payload

  std::size_t bins() const { return std::size_t{1} << (log - 1); }
  std::size_t bitmap_bytes() const { return bins() / 8; }
  std::size_t bytes(const range::Head& code) const {
    return kBlockHead + bitmap_bytes() + range::bytes_of(code.bits, 2 * kept);
  }
  const fourier::Tables& tables() const { return fourier::tables(log - 1); }
};

inline std::size_t block_bytes(const Shape& s) { return Block{0, 0, s.log, s.kept, 0}.bytes(s.code); }
inline Block block_at(const Shape& s, std::size_t n, std::size_t j) {
  const std::size_t first = j * s.length();
  const std::size_t values = std::min(s.length(), n - first);
  const int log = std::max(kLeastLog, static_cast<int>(std::bit_width(values - 1)));
  const std::size_t share = ((s.kept << (log - 1)) + s.length() / 2 - 1) >> (s.log - 1);
  return {first, values, log, share, kHead + j * block_bytes(s)};
}
inline std::size_t blocks(const Shape& s, std::size_t n) { return (n + s.length() - 1) / s.length(); }

// A block is transformed as multiples of its largest value's power of two: energies neither overflow nor vanish. Values
// from 2^123 on could make a sum that is not finite, sent or left: of such a block only 2^-40 is sent, and the largest
// stay as they are.
struct Scale {
  float down =
      0;  // to what is transformed, 1 / (2 L) included; 0: nothing is sent, since some value is not finite
  float up = 0;  // from a coefficient to c

  static Scale of(std::uint32_t largest, int log) {
    if (largest > range::kLargest) return {};
    const int power = std::max(-110, static_cast<int>(largest >> 23) - 127);
    return {std::ldexp(1.0F, -power - log - 1), std::ldexp(1.0F, power >= 123 ? power - 40 : power)};
  }
};

// Room for one block of 2^log values.
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

// The reference, block by block. encode_block says whether all taken values are finite.
bool encode_block(const Shape& shape, const Block& block, const Carry& in, const Room& room,
                  std::uint8_t* payload);
void decode_block(const Shape& shape, const Block& block, std::span<const ByteView> payloads,
                  const Merge& how, const Room& room, std::span<float> out);

// Room for as many blocks abreast as the widest vectors have lanes, W of them. It starts at a multiple of 64 bytes.
struct Work {
  static constexpr std::size_t kMostWidth = 16;
  float* z;         // [bins][re, im][W]
  float* energy;    // [bins][W]; later bitmaps: u32 [bins / 32][W]
  float* kept;      // [W][row]: the numbers that are sent of each, 2 k
  std::size_t row;  // a vector more than that

  static std::size_t row_of(const Shape& s) {
    return (2 * s.kept + 2 * kMostWidth - 1) / kMostWidth * kMostWidth;
  }
  static std::size_t bytes(const Shape& s) {
    return 4 * kMostWidth * (s.length() + s.length() / 2 + row_of(s));
  }
  static Work at(const Shape& s, std::uint8_t* p) {
    auto* z = reinterpret_cast<float*>(p);
    float* energy = z + kMostWidth * s.length();
    return {z, energy, energy + kMostWidth * s.length() / 2, row_of(s)};
  }
};

// Both do whole blocks from the first on, and return how many: vectors do all, as many abreast as they have lanes; the
// reference does none. The rest is done block by block. `scratch` is room for Work.
struct Kernels {
  std::size_t (*encode)(const Shape& shape, const Carry& in, std::uint8_t* payload, std::uint8_t* scratch,
                        bool& finite);
  std::size_t (*decode)(const Shape& shape, std::span<const ByteView> payloads, const Merge& how,
                        std::span<float> out, std::uint8_t* scratch);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // fft_simd.cc

}  // namespace tithe::fft
