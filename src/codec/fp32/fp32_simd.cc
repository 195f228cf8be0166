// SPDX-License-Identifier: Apache-2.0
#include "codec/fp32/fp32.h"
#include "codec/shared/common/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/fp32/fp32_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::fp32::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

HWY_INLINE void store(VF v, std::uint8_t* p) { hn::StoreU(v, Floats(), reinterpret_cast<float*>(p)); }

template <bool kResidual, bool kResidualOut>
bool encode_as(const EncodeInput& in, std::uint8_t* HWY_RESTRICT out) {
  Peak peak;
  std::size_t i = 0;
  for (; i < whole(in.n); i += lanes()) {
    const VF v = load_value<kResidual>(in, i);
    peak.see(magnitude(v));
    store(v, out + 4 * i);
    if (kResidualOut) hn::StoreU(hn::Sub(v, v), Floats(), in.residual_out + i);
  }
  return sums::encode_from(i, in, out) && peak.finite();
}

bool encode(const EncodeInput& in, std::uint8_t* out) {
  return by_residuals(in, [&](auto residual, auto residual_out)
                              HWY_ATTR { return encode_as<residual, residual_out>(in, out); });
}

void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t done = merge(
      payloads, how, out, [](const std::uint8_t* p, std::size_t i) HWY_ATTR { return load(p + 4 * i); });
  decode_from(done, payloads, how, out);
}

bool combine(Bytes acc, ByteView in) {
  Peak peak;
  std::size_t i = 0;
  for (; i < whole(acc.size() / 4); i += lanes()) {
    const VF sum = hn::Add(load(&acc[4 * i]), load(&in[4 * i]));
    peak.see(magnitude(sum));
    store(sum, &acc[4 * i]);
  }
  return sums::add_from(i, acc, in) && peak.finite();
}

}  // namespace
}  // namespace tithe::fp32::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::fp32 {
TITHE_KERNELS(const Kernels kSimd, encode, decode, combine);
}  // namespace tithe::fp32
#endif
