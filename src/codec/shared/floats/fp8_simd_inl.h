// SPDX-License-Identifier: Apache-2.0
// Codes of floats/fp8_format.h as vectors of binary16. e5m2 is the upper half of a binary16. e4m3, shifted by one
// bit less, has the fields of a binary16 with another exponent bias, which the scales make up for.
// Included after hwy/foreach_target.h, once per target, which is why the guard toggles.
#if defined(TITHE_CODEC_FP8_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_FP8_SIMD_INL_H_
#undef TITHE_CODEC_FP8_SIMD_INL_H_
#else
#define TITHE_CODEC_FP8_SIMD_INL_H_
#endif

#include "codec/shared/common/simd_inl.h"
#include "codec/shared/floats/fp8_format.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::fp8::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;
using fp8::magnitude;
using simd::HWY_NAMESPACE::magnitude;

using Narrow = hn::Rebind<std::int16_t, Floats>;
using VN = hn::Vec<Narrow>;
template <typename Float>
constexpr int kWiden = Float::kNumber == 0 ? 7 : 8;
template <typename Float>
constexpr std::uint32_t kDown = Float::kNumber == 0 ? 8 : 0;  // binades

HWY_INLINE VN narrow(int v) { return hn::Set(Narrow(), static_cast<std::int16_t>(v)); }
HWY_INLINE VF promoted(VN half) {
  const hn::Rebind<hwy::float16_t, Floats> d;
  return hn::PromoteTo(Floats(), hn::BitCast(d, half));
}

template <typename Float>
HWY_INLINE VN widened(const std::uint8_t* codes) {
  const hn::Rebind<std::int8_t, Floats> octets;
  const VN wide = hn::PromoteTo(Narrow(), hn::LoadU(octets, reinterpret_cast<const std::int8_t*>(codes)));
  constexpr int kUp = kWiden<Float>;
  const VN half = hn::ShiftLeft<kUp>(wide);
  return Float::kNumber == 0 ? hn::And(half, narrow(~0x4000)) : half;  // clears the copy of the sign bit
}

}  // namespace tithe::fp8::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_FP8_SIMD_INL_H_
