// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstdint>

#include "codec/shared/common/magnitude.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/common/magnitude_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::codec::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

// By bits, in which a NaN is larger than all others.
float largest(const float* v, std::size_t n) {
  VW most = hn::Zero(Words());
  std::size_t i = 0;
  for (; i < whole(n); i += lanes()) most = hn::Max(most, magnitude(hn::LoadU(Floats(), v + i)));
  std::uint32_t found = hn::GetLane(hn::MaxOfLanes(Words(), most));
  for (; i < n; ++i) found = std::max(found, std::bit_cast<std::uint32_t>(v[i]) & 0x7fffffffU);
  return std::bit_cast<float>(found);
}

}  // namespace
}  // namespace tithe::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::codec {

HWY_EXPORT(largest);

float largest_magnitude(std::span<const float> v) {
  return HWY_DYNAMIC_DISPATCH(largest)(v.data(), v.size());
}

}  // namespace tithe::codec
#endif
