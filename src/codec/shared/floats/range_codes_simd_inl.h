// SPDX-License-Identifier: Apache-2.0
// SIMD version of codec/shared/floats/range_codes.h for N = 8: a code is a byte. The codes are equal.
// Included after hwy/foreach_target.h, once per target, which is why the guard toggles.
#if defined(TITHE_CODEC_RANGE_CODES_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_RANGE_CODES_SIMD_INL_H_
#undef TITHE_CODEC_RANGE_CODES_SIMD_INL_H_
#else
#define TITHE_CODEC_RANGE_CODES_SIMD_INL_H_
#endif

#include "codec/shared/common/simd_inl.h"
#include "codec/shared/floats/range_codes.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::range::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;
using range::magnitude;
using simd::HWY_NAMESPACE::magnitude;

using Ints = hn::RebindToSigned<Floats>;
using Quarters = hn::Rebind<std::uint8_t, Floats>;
constexpr std::uint32_t kPositive8 = 127;

HWY_INLINE VW words(std::uint32_t v) { return hn::Set(Words(), v); }

class Pack8 {
 public:
  struct Packed {
    VW code;
    VW steps;
    VW negative;
    hn::Mask<Words> none;
    int shift;

    HWY_INLINE void store(std::uint8_t* to) const {
      hn::StoreU(hn::TruncateTo(Quarters(), code), Quarters(), to);
    }
    HWY_INLINE VF value() const {  // the decoded values
      const VW bits = hn::Or(hn::ShiftLeftSame(steps, shift), hn::And(negative, words(0x80000000U)));
      return from_bits(hn::IfThenZeroElse(none, bits));
    }
  };

  HWY_INLINE explicit Pack8(const Codes& codes)
      : shift_(codes.shift),
        half_step_(words(1U << (codes.shift - 1))),
        base_(words(codes.base)),
        top_(words(codes.top)),
        before_(words(codes.base - 1)),
        half_eps_(hn::Set(Ints(), static_cast<std::int32_t>(codes.half_eps))) {}

  HWY_INLINE Packed operator()(VF v) const {
    const VW mag = magnitude(v);
    const VW negative = hn::BitCast(Words(), hn::ShiftRight<31>(hn::BitCast(Ints(), v)));
    const auto none = hn::RebindMask(Words(), hn::Gt(half_eps_, hn::BitCast(Ints(), mag)));
    const VW near = hn::ShiftRightSame(hn::Add(mag, half_step_), shift_);
    const VW steps = hn::Max(hn::Min(near, top_), base_);
    const VW code = hn::Add(hn::Sub(steps, before_), hn::And(negative, words(kPositive8)));
    return {hn::IfThenZeroElse(none, code), steps, negative, none, shift_};
  }

 private:
  int shift_;
  VW half_step_, base_, top_, before_;
  hn::Vec<Ints> half_eps_;
};

class Unpack8 {
 public:
  HWY_INLINE explicit Unpack8(const Codes& codes) : Unpack8(codes.shift, codes.base, codes.top) {}
  HWY_INLINE Unpack8(int mantissa, std::uint32_t base)
      : Unpack8(23 - mantissa, base, std::min(base + kPositive8 - 1, kLargest >> (23 - mantissa))) {}

  HWY_INLINE VF operator()(const std::uint8_t* codes) const {
    const VW code = hn::PromoteTo(Words(), hn::LoadU(Quarters(), codes));
    const auto signed_code = hn::BitCast(Ints(), code);
    const auto some = hn::RebindMask(Words(), hn::Gt(signed_code, hn::Zero(Ints())));
    const auto minus = hn::RebindMask(Words(), hn::Gt(signed_code, hn::Set(Ints(), kPositive8)));
    const VW past = hn::Add(hn::Sub(code, hn::IfThenElseZero(minus, words(kPositive8))), before_);
    const VW value =
        hn::Or(hn::ShiftLeftSame(hn::Min(past, top_), shift_), hn::IfThenElseZero(minus, words(0x80000000U)));
    return from_bits(hn::IfThenElseZero(some, value));
  }

 private:
  HWY_INLINE Unpack8(int shift, std::uint32_t base, std::uint32_t top)
      : shift_(shift), before_(words(base - 1)), top_(words(top)) {}

  int shift_;
  VW before_, top_;
};

}  // namespace tithe::range::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_RANGE_CODES_SIMD_INL_H_
