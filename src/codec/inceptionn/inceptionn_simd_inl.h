// SPDX-License-Identifier: Apache-2.0
// Shared by the SIMD code of both layouts: classifies a vector of values. Included once per target.
#if defined(TITHE_CODEC_INCEPTIONN_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_INCEPTIONN_SIMD_INL_H_
#undef TITHE_CODEC_INCEPTIONN_SIMD_INL_H_
#else
#define TITHE_CODEC_INCEPTIONN_SIMD_INL_H_
#endif

#include "codec/inceptionn/inceptionn.h"
#include "codec/shared/common/compress_simd_inl.h"
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::inceptionn::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;

using Ints = hn::RebindToSigned<Floats>;
using Mask = hn::Mask<Words>;

HWY_INLINE std::uint64_t bits_of(Mask mask) { return set_of(Words(), mask); }

// Prefetches the `values` values from i + kAhead on. Encoding takes too long per value for the hardware prefetcher to
// get that far ahead.
template <bool kResidual>
HWY_INLINE void prefetch_ahead(const EncodeInput& in, std::size_t i, std::size_t values) {
  constexpr std::size_t kAhead = 512;
  constexpr std::size_t kLine = 16;  // values in a line of the cache
  if (in.n - i < kAhead + values) return;
  for (std::size_t k = i + kAhead; k < i + kAhead + values; k += kLine) {
    hwy::Prefetch(in.grad + k);
    if (kResidual) hwy::Prefetch(in.residual + k);
  }
}

struct Edges {
  HWY_INLINE explicit Edges(const Classes& c)
      : below{last_below(c.low), last_below(c.middle), last_below(c.top)},
        unit{hn::Set(Floats(), c.unit[0]), hn::Set(Floats(), c.unit[1])},
        shifts{shifts_of(c.unit[0]), shifts_of(c.unit[1])} {}
  // This minus the biased exponent of a magnitude is the right shift that turns its 24-bit significand into q.
  static HWY_INLINE VW shifts_of(float unit) {
    return hn::Set(Words(), (std::bit_cast<std::uint32_t>(unit) >> 23) + 23);
  }
  // Magnitudes are compared as signed integers: every instruction set has that comparison.
  static HWY_INLINE hn::Vec<Ints> last_below(std::uint32_t edge) {
    return hn::Set(Ints(), static_cast<std::int32_t>(edge) - 1);
  }
  HWY_INLINE Mask reach(VW mag, std::size_t k) const {
    return hn::RebindMask(Words(), hn::Gt(hn::BitCast(Ints(), mag), below[k]));
  }
  hn::Vec<Ints> below[3];
  VF unit[2];
  VW shifts[2];
};

// send() of codec/shared/floats/size_classes.h, for a vector of values.
struct Classified {
  HWY_INLINE Classified(const Edges& c, VF v)
      : taken(v),
        mag(magnitude(v)),
        sign(hn::AndNot(hn::Set(Words(), 0x7fffffffU), bits(v))),
        some(c.reach(mag, 0)),
        wide(c.reach(mag, 1)),
        full(c.reach(mag, 2)) {
    // floor(magnitude / unit) by a shift: cheaper than a conversion, which guards against overflow. A shift by 32 or
    // more gives 0 on every SIMD target here. q is unspecified where `full` is set.
    const VW fraction = hn::Or(hn::And(mag, hn::Set(Words(), 0x7fffffU)), hn::Set(Words(), 0x800000U));
    const VW by = hn::Sub(hn::IfThenElse(wide, c.shifts[1], c.shifts[0]), hn::ShiftRight<23>(mag));
    q = hn::Shr(fraction, by);
  }
  HWY_INLINE void store_residual(const Edges& c, float* residual_out) const {
    const VF unit = hn::IfThenElse(hn::RebindMask(Floats(), wide), c.unit[1], c.unit[0]);
    const VF size = hn::Mul(hn::ConvertTo(Floats(), hn::BitCast(Ints(), q)), unit);
    const VW coded = hn::IfThenElseZero(some, hn::Or(bits(size), sign));
    const VF sent = from_bits(hn::IfThenElse(full, bits(taken), coded));
    hn::StoreU(hn::Sub(taken, sent), Floats(), residual_out);
  }
  VF taken;
  VW mag;
  VW sign;
  Mask some, wide, full;  // magnitudes from 2^-b, from 2^middle, from 2^top on
  VW q;
};

#if HWY_TARGET == HWY_AVX3_DL
using Shorts = hn::Repartition<std::uint16_t, Words>;
using Octets = hn::Repartition<std::uint8_t, Words>;

struct ByteEdges : Edges {
  HWY_INLINE explicit ByteEdges(const Classes& c)
      : Edges(c),
        exponent_below{one_less(c.low), one_less(c.middle), one_less(c.top)},
        raise{hn::Set(Floats(), c.unit[0] * 0x1p23F), hn::Set(Floats(), c.unit[1] * 0x1p23F)} {}
  static HWY_INLINE hn::Vec<Octets> one_less(std::uint32_t edge) {
    return hn::Set(Octets(), static_cast<std::uint8_t>((edge >> 23) - 1));
  }
  hn::Vec<Octets> exponent_below[3];
  VF raise[2];  // 2^23 units
};

// The halves (bytes) of the elements of two vectors, in order.
HWY_INLINE hn::Vec<Shorts> lower_halves(VF first, VF second) {
  return hn::ConcatEven(Shorts(), hn::BitCast(Shorts(), second), hn::BitCast(Shorts(), first));
}
HWY_INLINE hn::Vec<Shorts> upper_halves(VF first, VF second) {
  return hn::ConcatOdd(Shorts(), hn::BitCast(Shorts(), second), hn::BitCast(Shorts(), first));
}
HWY_INLINE hn::Vec<Octets> lower_bytes(hn::Vec<Shorts> first, hn::Vec<Shorts> second) {
  return hn::ConcatEven(Octets(), hn::BitCast(Octets(), second), hn::BitCast(Octets(), first));
}
HWY_INLINE hn::Vec<Octets> upper_bytes(hn::Vec<Shorts> first, hn::Vec<Shorts> second) {
  return hn::ConcatOdd(Octets(), hn::BitCast(Octets(), second), hn::BitCast(Octets(), first));
}

// Adds `by` = 2^23 units, with the sign of v; |v| is at most 2^23 units. One ulp is then one unit, and
// the sum is rounded toward zero, so its low bits are floor(magnitude / unit).
HWY_INLINE VF add_toward_zero(VF a, VF b) {
  return VF{_mm512_add_round_ps(a.raw, b.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
}
HWY_INLINE VF raise(VF v, VF by) { return add_toward_zero(v, hn::CopySign(by, v)); }

// Writes the residual of v.
HWY_INLINE void store_residual(const ByteEdges& c, VF v, float* residual_out) {
  const VW mag = magnitude(v);
  const auto reach = [&](std::size_t k) HWY_ATTR { return hn::RebindMask(Floats(), c.reach(mag, k)); };
  const VF up = hn::CopySign(hn::IfThenElse(reach(1), c.raise[1], c.raise[0]), v);
  const VF coded = hn::IfThenElseZero(reach(0), hn::Sub(add_toward_zero(v, up), up));
  hn::StoreU(hn::Sub(v, hn::IfThenElse(reach(2), v, coded)), Floats(), residual_out);
}
#else
using ByteEdges = Edges;
#endif

}  // namespace tithe::inceptionn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_INCEPTIONN_SIMD_INL_H_
