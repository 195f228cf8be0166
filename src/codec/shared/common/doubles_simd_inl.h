// SPDX-License-Identifier: Apache-2.0
// A vector of floats as two of doubles.
#if defined(TITHE_CODEC_DOUBLES_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_DOUBLES_SIMD_INL_H_
#undef TITHE_CODEC_DOUBLES_SIMD_INL_H_
#else
#define TITHE_CODEC_DOUBLES_SIMD_INL_H_
#endif

#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::simd::HWY_NAMESPACE {

using Doubles = hn::CappedTag<double, 16>;
using VD = hn::Vec<Doubles>;

// Explicit constructors: GCC does not compile implicit ones for the target, and NEON's vectors have constructors to
// inline.
struct Wide {
  HWY_INLINE Wide() {}
  HWY_INLINE Wide(VD l, VD h) : low(l), high(h) {}
  VD low;
  VD high;
};

#if HWY_TARGET == HWY_SCALAR  // one lane; never called, as whole() is 0
HWY_INLINE Wide widen(VF v) { return {hn::PromoteTo(Doubles(), v), hn::Zero(Doubles())}; }
HWY_INLINE VF narrow(Wide v) { return hn::DemoteTo(Floats(), v.low); }
#else
using HalfFloats = hn::Half<Floats>;
HWY_INLINE Wide widen(VF v) {
  return {hn::PromoteTo(Doubles(), hn::LowerHalf(v)),
          hn::PromoteTo(Doubles(), hn::UpperHalf(HalfFloats(), v))};
}
// Rounds each to the nearest float.
HWY_INLINE VF narrow(Wide v) {
  return hn::Combine(Floats(), hn::DemoteTo(HalfFloats(), v.high), hn::DemoteTo(HalfFloats(), v.low));
}
#endif

}  // namespace tithe::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_DOUBLES_SIMD_INL_H_
