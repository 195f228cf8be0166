// SPDX-License-Identifier: Apache-2.0
#pragma once
// What codecs that work block by block share. A block fits in the nearest cache: a first look finds its scale, a
// second pass sends and leaves, and memory is read once.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/fold.h"
#include "base/rng.h"
#include "codec/common/payload.h"
#include "tithe/codec.h"

namespace tithe::block {

inline Carry part(const Carry& in, std::size_t first, std::size_t len) {
  return {in.grad + first, in.residual ? in.residual + first : nullptr,
          in.residual_out ? in.residual_out + first : nullptr, len};
}

inline std::uint32_t magnitude_bits(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU; }

// What the first look at a block finds.
struct Look {
  std::uint32_t peak = 0;  // largest magnitude, as its bits
  float sum = 0;           // of all magnitudes, in the shape of base/fold.h; 0 if nobody asked

  bool finite() const { return peak < 0x7f800000U; }
  float most() const { return std::bit_cast<float>(peak); }
  // A sum that overflowed is held at the largest float, so that the mean of finite values is finite.
  float mean(std::size_t n) const {
    return n == 0 ? 0.0F : std::min(sum, std::numeric_limits<float>::max()) / static_cast<float>(n);
  }
};

inline Look look(const Carry& in) {
  Look found;
  Fold<float> sum;
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.take(i);
    found.peak = std::max(found.peak, magnitude_bits(v));
    sum.add(i, std::fabs(v));
  }
  found.sum = sum.total();
  return found;
}

// Block after block of `len` values, each to `bytes` bytes: `send(look, first, values, to)`, or `nothing(values, to)`
// where a value is not finite. True: all are finite.
template <typename Send, typename Nothing>
bool each(const Carry& in, std::size_t len, std::size_t bytes, std::uint8_t* out, const Send& send,
          const Nothing& nothing) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += len) {
    const Carry values = part(in, first, std::min(len, in.n - first));
    std::uint8_t* to = out + first / len * bytes;
    const Look found = look(values);
    if (found.finite()) {
      send(found, first, values, to);
    } else {
      finite = false;
      nothing(values, to);
    }
  }
  return finite;
}

// Random rounding of values to `levels` even steps on each side of 0, as terngrad and qsgd do it:
//   rounded(v, draw) = floor(v levels / scale + draw / 2^fraction), -levels .. levels
// for |v| <= scale, and exactly +-levels at +-scale. v in units of 2^-fraction of a step is taken to the nearest whole
// number first; those stay below 2^22, so the product is off by less than 1/2, and a float of 3 * 2^22 more holds
// that number in its last bits.
// Tiny scales are lifted by a power of two first: their reciprocals are no floats. Vectors leave such a block to the
// reference. Without a scale all levels are 0.
struct Steps {
  int fraction;
  float lift = 1;
  float per = 0;

  // bits: of levels and a sign; levels < 2^(bits - 1).
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

// ---- The impls of codecs with one phase whose payloads have a fixed size.

struct Kernels {
  bool (*encode)(const Call&, const Carry&, std::uint8_t* out);  // true: all taken values are finite
  void (*decode)(const Call&, std::span<const ByteView> payloads, const Merge&, std::span<float>);
};

template <const Codec& kCodec, const Kernels& kWith>
Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  const std::size_t bytes = kCodec.phases[0].bound(call.settings, in.n);
  TITHE_TRY(codec::check_room(kCodec.name, out.size(), bytes));
  return Encoded{bytes, kWith.encode(call, in, out.data())};
}

template <codec::Check kCheck, const auto& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  TITHE_TRY(codec::check_all(kCheck, call, payloads, out.size()));
  kWith.decode(call, payloads, how, out);
  return {};
}

template <const Codec& kCodec, codec::Check kCheck, const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kCodec, kWith>, .decode = decode<kCheck, kWith>, .check = kCheck};

// How a decoder reads a scale: finite, and +0 or above.
inline bool is_scale(std::uint32_t bits) { return bits < 0x7f800000U; }

}  // namespace tithe::block
