// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "codec/terngrad/terngrad.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/terngrad/terngrad_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/terngrad/ternary_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::terngrad::HWY_NAMESPACE {
namespace {
using namespace ternary::HWY_NAMESPACE;

template <bool kCut>
class Sends {
 public:
  HWY_INLINE Sends(const Pick& pick, std::size_t first)
      : draws_(pick.key, first), steps_(pick.steps), scale_(hn::Set(Floats(), pick.scale)) {}
  static bool can(const Pick& pick) { return pick.steps.lift == 1.0F; }
  using Two = VW;
  HWY_INLINE Two two() { return draws_.word(); }
  template <bool kUpper>
  HWY_INLINE Choice at(VF v, Two word) const {
    const VF held = kCut ? hn::Max(hn::Neg(scale_), hn::Min(v, scale_)) : v;
    const VW level = steps_.at(held, kUpper ? draws_.upper(word) : draws_.lower(word));  // + 2: 1, 2 or 3
    const Mask sent = hn::RebindMask(Floats(), hn::TestBit(level, hn::Set(Words(), 1U << kFraction)));
    const Mask minus = hn::RebindMask(
        Floats(), hn::Eq(hn::And(level, hn::Set(Words(), 2U << kFraction)), hn::Zero(Words())));
    return {sent, minus};
  }

 private:
  static constexpr int kFraction = tithe::block::Steps::fraction_of(kBits);
  Draws<kFraction> draws_;
  RoundedSteps steps_;
  VF scale_;
};

// The sum of magnitudes is there for cutting only.
struct Uncut : Rule {
  static constexpr bool kSum = false;
};

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  const Rule rule(call);
  return rule.cut > 0.0F ? encode_all<Sends<true>>(rule, in, out)
                         : encode_all<Sends<false>>(Uncut{rule}, in, out);
}

}  // namespace
}  // namespace tithe::terngrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::terngrad {
TITHE_EXPORT(encode)
const block::Kernels kSimd = {TITHE_KERNEL(encode), .decode = ternary::decode_simd};
}  // namespace tithe::terngrad
#endif
