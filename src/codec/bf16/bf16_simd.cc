// SPDX-License-Identifier: Apache-2.0
#include "codec/bf16/bf16.h"
#include "codec/shared/common/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/bf16/bf16_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/floats/half_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::bf16::HWY_NAMESPACE {
namespace {
using namespace half::HWY_NAMESPACE;

struct Pack {
  static HWY_INLINE VF pack(VF v, std::uint8_t* out) {
    const VW mag = magnitude(v);
    const VW odd = hn::And(hn::ShiftRight<16>(mag), hn::Set(Words(), 1U));
    const VW up = hn::Add(hn::Add(mag, hn::Set(Words(), 0x7fffU)), odd);
    const VW held = hn::Min(up, hn::Set(Words(), kLargest << 16 | 0xffffU));
    const VW sign = hn::AndNot(hn::Set(Words(), 0x7fffffffU), bits(v));
    const VW sent = hn::Or(hn::And(held, hn::Set(Words(), 0xffff0000U)), sign);
    store_halves(hn::TruncateTo(Halves(), hn::ShiftRight<16>(sent)), out);
    return from_bits(sent);
  }
  static HWY_INLINE VF unpack(const std::uint8_t* p) {
    return from_bits(hn::ShiftLeft<16>(hn::PromoteTo(Words(), load_halves(p))));
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
}  // namespace tithe::bf16::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::bf16 {
TITHE_KERNELS(const half::Kernels kSimd, encode, decode, combine);
}  // namespace tithe::bf16
#endif
