// SPDX-License-Identifier: Apache-2.0
#include "base/finite.h"
#include "codec/shared/common/residuals.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/common/residuals_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::codec::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

template <bool kResidual, bool kResidualOut>
bool store_residual_as(const EncodeInput& in) {
  Peak peak;
  std::size_t i = 0;
  for (; i < whole(in.n); i += lanes()) {
    const VF v = load_value<kResidual>(in, i);
    peak.see(magnitude(v));
    if (kResidualOut) hn::StoreU(v, Floats(), in.residual_out + i);
  }
  bool finite = peak.finite();
  for (; i < in.n; ++i) {
    const float v = in.value(i);
    finite = finite && is_finite(v);
    in.store_residual(i, 0.0F);
  }
  return finite;
}

bool store_residual(const EncodeInput& in) {
  return by_residuals(in, [&](auto residual, auto residual_out)
                              HWY_ATTR { return store_residual_as<residual, residual_out>(in); });
}

}  // namespace
}  // namespace tithe::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::codec {

HWY_EXPORT(store_residual);

bool store_residuals(const EncodeInput& in) { return HWY_DYNAMIC_DISPATCH(store_residual)(in); }

}  // namespace tithe::codec
#endif
