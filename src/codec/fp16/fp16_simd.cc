// SPDX-License-Identifier: Apache-2.0
#include "codec/fp16/fp16.h"
#include "codec/shared/common/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/fp16/fp16_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/floats/half_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::fp16::HWY_NAMESPACE {
namespace {
using namespace half::HWY_NAMESPACE;

// The processor's own conversions round to nearest even, and keep denormals, as Format does.
struct Pack {
  using Native = hn::Rebind<hwy::float16_t, Floats>;
  static HWY_INLINE VF pack(VF v, std::uint8_t* out) {
    const VW held = hn::Min(magnitude(v), hn::Set(Words(), kLargest));
    const VW sign = hn::AndNot(hn::Set(Words(), 0x7fffffffU), bits(v));
    const auto h = hn::DemoteTo(Native(), from_bits(hn::Or(held, sign)));
    store_halves(hn::BitCast(Halves(), h), out);
    return hn::PromoteTo(Floats(), h);
  }
  static HWY_INLINE VF unpack(const std::uint8_t* p) {
    return hn::PromoteTo(Floats(), hn::BitCast(Native(), load_halves(p)));
  }
};

bool encode(const EncodeInput& in, std::uint8_t* out) { return encode_all<Format, Pack>(in, out); }
void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  decode_all<Format, Pack>(payloads, how, out);
}
bool combine(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* residual_out) {
  return combine_all<Format, Pack>(n, acc, in, residual_out);
}

}  // namespace
}  // namespace tithe::fp16::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::fp16 {
TITHE_KERNELS(const half::Kernels kSimd, encode, decode, combine);
}  // namespace tithe::fp16
#endif
