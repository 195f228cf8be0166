// SPDX-License-Identifier: Apache-2.0
#include "codec/terngrad/terngrad.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/terngrad/terngrad_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/ternary_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::terngrad::HWY_NAMESPACE {
namespace {
using namespace ternary::HWY_NAMESPACE;

class Sends {
 public:
  HWY_INLINE explicit Sends(const Pick& pick)
      : draws_(pick.key), steps_(pick.steps), scale_(hn::Set(Floats(), pick.scale)) {}
  HWY_INLINE Mask at(VF magnitude, std::size_t i) const {
    return less(hn::ShiftRight<32 - kDrawBits>(draws_.at(i)), steps_.count(hn::Min(magnitude, scale_)));
  }

 private:
  Draws draws_;
  CountedSteps steps_;
  VF scale_;
};

// The sum of magnitudes is there for cutting only.
struct Uncut : Rule {
  static constexpr bool kSum = false;
};

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  const Rule rule(call);
  return rule.cut > 0.0F ? encode_all<Sends>(rule, in, out) : encode_all<Sends>(Uncut{rule}, in, out);
}

}  // namespace
}  // namespace tithe::terngrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::terngrad {

HWY_EXPORT(encode);

bool encode_simd(const Call& call, const Carry& in, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode)(call, in, out);
}

}  // namespace tithe::terngrad
#endif
