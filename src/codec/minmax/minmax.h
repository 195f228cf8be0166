// SPDX-License-Identifier: Apache-2.0
#pragma once
// minmax: rounds to 2^bits evenly spaced levels between the smallest and the largest value (the b-bit range quantiser
// that HiPress, SOSP 2021, and its language CompLL publish as "TernGrad").
//
// Layout   u8 bits, 1, 2, 4 or 8 | u8 codes in the last byte if it is not full, else 0 | f32 min | f32 max |
//          ceil(n * bits / 8) bytes of codes, lowest bit first, padding bits 0
//          value = min + code * (max - min) / (2^bits - 1), in binary64 and rounded once
// Header and byte order are those of HiPress. Its published defects are fixed: the encoder skips values, it fills bytes
// from one end while the decoder reads from the other, and it counts the tail in levels instead of codes.
// round=stochastic: level floor(x + u), unbiased. round=nearest: a smaller error in each round; for use with feedback.
// mode=literal: as printed in HiPress (SOSP 2021, figure 5), for peers that use it: the second byte is n mod 2^bits,
// and gap, level and value are computed in fp32, so the largest value may decode to a slightly different one. The
// layout is the published one too. The encoder of the published program is not reproduced: its own decoder cannot read
// it. Zero need not be a level. The encoder reads memory twice.
#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/bit_packing.h"
#include "codec/shared/common/block.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec minmax_codec;
}

namespace tithe::minmax {

enum Param : std::size_t { kBits, kRound, kMode };

inline constexpr std::size_t kHead = 10;
inline constexpr int kDrawBits = 24;

inline unsigned bits_of(const Settings& s) { return 1U << static_cast<unsigned>(s[kBits]); }
inline bool literal(const Settings& s) { return s[kMode] != 0; }

// The smallest and the largest value; 0 and 0 where a value is not finite.
struct Ends {
  float min = 0;
  float max = 0;
  bool finite = true;
};

// Writes everything before the codes. If max - min overflows, both are halved: then the difference between a value and
// its level is a float.
void put_head(const Settings& s, std::size_t n, Ends ends, std::uint8_t* payload);

// The levels of a payload. Real: double, or float for mode=literal.
template <typename Real>
struct Range {
  Real min;
  Real max;
  Real steps;  // number of levels - 1

  Range(const std::uint8_t* payload, unsigned bits)
      : min(wire::get<float>(payload + 2)),
        max(wire::get<float>(payload + 6)),
        steps(static_cast<Real>((1U << bits) - 1)) {}
  Real gap() const { return (max - min) / steps; }
  float value(unsigned code) const { return static_cast<float>(min + static_cast<Real>(code) * gap()); }
  // u: 0 <= u < 1, or 1/2 for the nearest level.
  unsigned code(float v, double u) const {
    if (!(gap() > 0)) return 0;
    const Real level =
        std::floor((std::clamp(static_cast<Real>(v), min, max) - min) / gap() + static_cast<Real>(u));
    return static_cast<unsigned>(std::min(level, steps));
  }
};

// Encodes values [first, n) into a payload that has its head; the bytes of their codes are 0 before.
template <typename Real>
void send_from(std::size_t first, const Call& call, const EncodeInput& in, std::uint8_t* payload) {
  const unsigned bits = bits_of(call.settings);
  const bool nearest = call.settings[kRound] != 0;
  const std::uint64_t key = block::key(call);
  const Range<Real> range(payload, bits);
  for (std::size_t i = first; i < in.n; ++i) {
    const std::uint32_t draw = draw_high(key, static_cast<std::uint32_t>(i)) >> (32 - kDrawBits);
    const unsigned code = range.code(in.value(i), nearest ? 0.5 : std::ldexp(draw, -kDrawBits));
    bit_packing::put(payload + kHead, i, bits, code);
    in.store_residual(i, range.value(code));
  }
}

// Decodes values [first, n).
template <typename Real>
void decode_from(std::size_t first, unsigned bits, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) {
  codec::merge_values(
      payloads, how, out,
      [bits](ByteView p, std::size_t i) {
        return Range<Real>(p.data(), bits).value(bit_packing::get(p.data() + kHead, i, bits));
      },
      first);
}

extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // minmax_simd.cc

}  // namespace tithe::minmax
