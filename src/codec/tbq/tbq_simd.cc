// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "codec/tbq/tbq.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/tbq/tbq_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/levels/ternary_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::tbq::HWY_NAMESPACE {
namespace {
using namespace ternary::HWY_NAMESPACE;

class Sends {
 public:
  HWY_INLINE Sends(const Pick& pick, std::size_t)
      : least_(hn::Set(Floats(), pick.scale > 0.0F ? pick.scale : std::numeric_limits<float>::infinity())) {}
  static bool can(const Pick&) { return true; }
  struct Two {};
  HWY_INLINE Two two() const { return {}; }
  template <bool kUpper>
  HWY_INLINE Choice at(VF v, Two) const {
    const Mask sent = hn::Ge(hn::Abs(v), least_);
    return {sent, hn::And(sent, hn::Lt(v, hn::Zero(Floats())))};
  }

 private:
  VF least_;
};

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  return encode_all<Sends>(Rule(call.settings), in, out);
}

}  // namespace
}  // namespace tithe::tbq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::tbq {
TITHE_EXPORT(encode)
const block::Kernels kSimd = {TITHE_KERNEL(encode), .decode = ternary::decode_simd};
}  // namespace tithe::tbq
#endif
