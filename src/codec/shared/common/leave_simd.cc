// SPDX-License-Identifier: Apache-2.0
#include "base/finite.h"
#include "codec/shared/common/leave.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/common/leave_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::codec::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

template <bool kResidual, bool kResidualOut>
bool leave_as(const EncodeInput& in) {
  Peak peak;
  std::size_t i = 0;
  for (; i < whole(in.n); i += lanes()) {
    const VF v = take<kResidual>(in, i);
    peak.see(magnitude(v));
    if (kResidualOut) hn::StoreU(v, Floats(), in.residual_out + i);
  }
  bool finite = peak.finite();
  for (; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    in.leave(i, 0.0F);
  }
  return finite;
}

bool leave(const EncodeInput& in) {
  if (in.residual) return in.residual_out ? leave_as<true, true>(in) : leave_as<true, false>(in);
  return in.residual_out ? leave_as<false, true>(in) : leave_as<false, false>(in);
}

}  // namespace
}  // namespace tithe::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::codec {

HWY_EXPORT(leave);

bool leave_all(const EncodeInput& in) { return HWY_DYNAMIC_DISPATCH(leave)(in); }

}  // namespace tithe::codec
#endif
