// SPDX-License-Identifier: Apache-2.0
#pragma once
// sign: a sign per value and a scale per block (signSGD, J. Bernstein et al., ICML 2018; with the mean magnitude as
// scale and with feedback, S. P. Karimireddy et al., ICML 2019).
//
// Layout   per block of kBlock values (the last one may be shorter), back to back:
//          f32 scale, finite and not negative | ceil(len/8) bits, LSB first, 1 = negative; 0 past len
// The mean magnitude is the scale of least squared error: |x - C(x)|^2 = |x|^2 - |x|_1^2 / len, at most
// (1 - 1 / len) |x|^2.
#include "base/bytes.h"
#include "codec/shared/common/bit_packing.h"
#include "codec/shared/common/block.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec sign_codec;
}

namespace tithe::sign {

enum Param : std::size_t { kScale };

inline constexpr std::size_t kBlock = 2048;
inline constexpr std::size_t kHead = 4;
inline constexpr std::size_t kBlockBytes = kHead + kBlock / 8;

inline std::size_t block_bytes(std::size_t len) { return kHead + bit_packing::bytes_for(len, 1); }
inline std::size_t bound(const Settings&, std::size_t n) {
  return n / kBlock * kBlockBytes + (n % kBlock ? block_bytes(n % kBlock) : 0);
}

// The scale of a block; 0 if some value is not finite.
inline float scale_of(const Call& call, const block::Stats& stats, std::size_t len) {
  const auto given = static_cast<float>(call.settings[kScale]);
  return !stats.finite() ? 0.0F : given > 0.0F ? given : stats.mean(len);
}

// Encodes values [first, len) of a block; the bytes of their bits are 0 before.
inline void send_from(std::size_t first, float scale, const Carry& in, std::uint8_t* block) {
  for (std::size_t i = first; i < in.n; ++i) {
    const bool minus = in.take(i) < 0.0F;
    bit_packing::put(block + kHead, i, 1, minus ? 1U : 0U);
    in.leave(i, minus ? -scale : scale);
  }
}

// Value i of a block.
inline float value_of(const std::uint8_t* block, std::size_t i) {
  const float scale = wire::get<float>(block);
  return bit_packing::get(block + kHead, i, 1) != 0 ? -scale : scale;
}

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // sign_simd.cc

}  // namespace tithe::sign
