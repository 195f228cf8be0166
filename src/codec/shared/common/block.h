// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by codecs that work block by block: slices of values, stochastic rounding, and the tables of codecs with one
// phase.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "codec/shared/common/payload.h"
#include "tithe/seam/codec.h"

namespace tithe::block {

inline EncodeInput part(const EncodeInput& in, std::size_t first, std::size_t len) {
  return {in.grad + first, in.residual ? in.residual + first : nullptr,
          in.residual_out ? in.residual_out + first : nullptr, len};
}

inline std::uint32_t magnitude_bits(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }

// Stochastic rounding to `levels` even steps on each side of 0, for stochastic_level of the codec language:
//   rounded(v, draw) = floor(v levels / scale + draw / 2^fraction), -levels .. levels
// for |v| <= scale, and exactly +-levels at +-scale. v levels / scale is first rounded to a multiple of 2^-fraction,
// that is, to an integer below 2^22 in those units: the product is off by less than 1/2, and adding 3 * 2^22 to it
// gives a float with that integer in its low bits (which compiled code uses). The reciprocal of a tiny scale overflows,
// so `lift`, a power of two, first multiplies scale and value. With scale 0 all levels are 0.
struct Steps {
  int fraction;
  float lift = 1;
  float per = 0;

  // bits: of a level with its sign; levels < 2^(bits - 1).
  Steps(float scale, std::uint32_t levels, unsigned bits) : fraction(fraction_of(bits)) {
    if (!(scale > 0.0F)) return;
    if (scale < 0x1p-100F) lift = 0x1p100F;
    per = static_cast<float>(levels << fraction) / (scale * lift);
  }
  static constexpr int fraction_of(unsigned bits) { return 23 - static_cast<int>(bits); }
  int rounded(float v, std::uint32_t draw) const {
    const auto whole = static_cast<std::int32_t>(std::nearbyint(v * lift * per));
    return (whole + static_cast<std::int32_t>(draw)) >> fraction;
  }
};

inline std::uint64_t key(const Call& call) {
  return rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
}

// ---- The impls of codecs with one phase and payloads of a fixed size

struct Kernels {
  bool (*encode)(const Call&, const EncodeInput&, std::uint8_t* out);  // true: all taken values are finite
  void (*decode)(const Call&, std::span<const ByteView> payloads, const Merge&, std::span<float>);
};

template <const Codec& kCodec, const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const std::size_t bytes = kCodec.phases[0].bound(call.settings, in.n);
  TITHE_TRY(codec::check_room(kCodec.name, out.size(), bytes));
  return Encoded{bytes, kWith.encode(call, in, out.data())};
}

template <const Codec& kCodec, codec::Check kCheck, const Kernels& kWith>
constexpr Impl kImpl = {
    .encode = encode<kCodec, kWith>, .decode = codec::decode<kCheck, kWith>, .check = kCheck};

// True if these bits are a scale that a decoder accepts: a finite float, +0 or above.
inline bool is_scale(std::uint32_t bits) { return bits < 0x7f800000U; }

}  // namespace tithe::block
