// SPDX-License-Identifier: Apache-2.0
// What the Highway paths of both layouts share: a vector of values sorted into classes. Included once per target.
#if defined(TITHE_CODEC_INCEPTIONN_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_INCEPTIONN_SIMD_INL_H_
#undef TITHE_CODEC_INCEPTIONN_SIMD_INL_H_
#else
#define TITHE_CODEC_INCEPTIONN_SIMD_INL_H_
#endif

#include "codec/inceptionn/inceptionn.h"
#include "codec/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::inceptionn::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;

using Ints = hn::RebindToSigned<Floats>;
using Mask = hn::Mask<Words>;

HWY_INLINE std::uint64_t bits_of(Mask mask) {
  std::uint8_t room[8] = {};
  hn::StoreMaskBits(Words(), mask, room);
  return wire::get<std::uint16_t>(room);
}

struct Edges {
  HWY_INLINE explicit Edges(const Classes& c)
      : below{last_below(c.low), last_below(c.middle), last_below(c.top)},
        unit{hn::Set(Floats(), c.unit[0]), hn::Set(Floats(), c.unit[1])},
        per_unit{hn::Set(Floats(), c.per_unit[0]), hn::Set(Floats(), c.per_unit[1])} {}
  // Magnitudes are compared as signed integers, which every instruction set can.
  static HWY_INLINE hn::Vec<Ints> last_below(std::uint32_t edge) {
    return hn::Set(Ints(), static_cast<std::int32_t>(edge) - 1);
  }
  HWY_INLINE Mask reach(VW mag, std::size_t k) const {
    return hn::RebindMask(Words(), hn::Gt(hn::BitCast(Ints(), mag), below[k]));
  }
  hn::Vec<Ints> below[3];
  VF unit[2];
  VF per_unit[2];
};

// What send does, for a vector of values.
struct Sorted {
  HWY_INLINE Sorted(const Edges& c, VF v)
      : taken(v),
        mag(magnitude(v)),
        sign(hn::AndNot(hn::Set(Words(), 0x7fffffffU), bits(v))),
        some(c.reach(mag, 0)),
        wide(c.reach(mag, 1)),
        full(c.reach(mag, 2)) {
    const VF per_unit = hn::IfThenElse(hn::RebindMask(Floats(), wide), c.per_unit[1], c.per_unit[0]);
    q = hn::ConvertTo(Ints(), hn::Mul(from_bits(mag), per_unit));  // where it is full: anything
  }
  HWY_INLINE VW code() const { return hn::BitCast(Words(), q); }
  HWY_INLINE void leave(const Edges& c, float* left) const {
    const VF unit = hn::IfThenElse(hn::RebindMask(Floats(), wide), c.unit[1], c.unit[0]);
    const VF size = hn::Mul(hn::ConvertTo(Floats(), q), unit);
    const VW coded = hn::IfThenElseZero(some, hn::Or(bits(size), sign));
    const VF sent = from_bits(hn::IfThenElse(full, bits(taken), coded));
    hn::StoreU(hn::Sub(taken, sent), Floats(), left);
  }
  VF taken;
  VW mag;
  VW sign;
  Mask some, wide, full;  // magnitudes from 2^-b, from 2^middle, from 2^top on
  hn::Vec<Ints> q;
};

}  // namespace tithe::inceptionn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_INCEPTIONN_SIMD_INL_H_
