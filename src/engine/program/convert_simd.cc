// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "engine/program/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/program/convert_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

// The processor's own fp16 conversions change signalling NaNs to quiet ones and keep other payloads, so they are not
// used: these kernels write the same bits as convert.h.
HWY_BEFORE_NAMESPACE();
namespace tithe::engine::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

using Halves = hn::Rebind<std::uint16_t, Floats>;

HWY_INLINE VW word(std::uint32_t v) { return hn::Set(Words(), v); }
HWY_INLINE VW widened(const std::uint16_t* p) { return hn::PromoteTo(Words(), hn::LoadU(Halves(), p)); }
HWY_INLINE void narrow(VW v, std::uint16_t* p) { hn::StoreU(hn::TruncateTo(Halves(), v), Halves(), p); }

void bf16_to_floats(const std::uint16_t* HWY_RESTRICT in, std::size_t n, float* HWY_RESTRICT out) {
  std::size_t i = 0;
  for (; i < whole(n); i += lanes())
    hn::StoreU(from_bits(hn::ShiftLeft<16>(widened(in + i))), Floats(), out + i);
  for (; i < n; ++i) out[i] = from_bf16(in[i]);
}

void floats_to_bf16(const float* HWY_RESTRICT in, std::size_t n, std::uint16_t* HWY_RESTRICT out) {
  std::size_t i = 0;
  for (; i < whole(n); i += lanes()) {
    const VF v = load(in + i);
    const VW high = hn::ShiftRight<16>(bits(v));
    const VW up = hn::Add(hn::Add(bits(v), word(0x7fffU)), hn::And(high, word(1U)));
    const auto nan = hn::Gt(magnitude(v), word(0x7f800000U));
    narrow(hn::IfThenElse(nan, hn::Or(high, word(0x40U)), hn::ShiftRight<16>(up)), out + i);
  }
  for (; i < n; ++i) out[i] = to_bf16(in[i]);
}

void fp16_to_floats(const std::uint16_t* HWY_RESTRICT in, std::size_t n, float* HWY_RESTRICT out) {
  const VF move = hn::Set(Floats(), 0x1p112F);
  std::size_t i = 0;
  for (; i < whole(n); i += lanes()) {
    const VW h = widened(in + i);
    const VW sign = hn::ShiftLeft<16>(hn::And(h, word(0x8000U)));
    const VW rest = hn::ShiftLeft<13>(hn::And(h, word(0x7fffU)));
    const VW moved = bits(hn::Mul(from_bits(rest), move));
    const VW mag = hn::IfThenElse(hn::Lt(rest, word(0x0f800000U)), moved, hn::Or(rest, word(0x7f800000U)));
    hn::StoreU(from_bits(hn::Or(sign, mag)), Floats(), out + i);
  }
  for (; i < n; ++i) out[i] = from_fp16(in[i]);
}

void floats_to_fp16(const float* HWY_RESTRICT in, std::size_t n, std::uint16_t* HWY_RESTRICT out) {
  const VF half = hn::Set(Floats(), 0.5F);
  std::size_t i = 0;
  for (; i < whole(n); i += lanes()) {
    const VF v = load(in + i);
    const VW mag = magnitude(v);
    const VW sign = hn::And(hn::ShiftRight<16>(bits(v)), word(0x8000U));
    const VW subnormal = hn::Sub(bits(hn::Add(from_bits(mag), half)), word(0x3f000000U));
    const VW odd = hn::And(hn::ShiftRight<13>(mag), word(1U));
    const VW up = hn::Add(hn::Add(hn::Sub(mag, word(0x38000000U)), word(0xfffU)), odd);
    VW h = hn::IfThenElse(hn::Lt(mag, word(0x38800000U)), subnormal, hn::ShiftRight<13>(up));
    h = hn::IfThenElse(hn::Lt(mag, word(0x477ff000U)), h, word(0x7c00U));
    h = hn::IfThenElse(hn::Gt(mag, word(0x7f800000U)), word(0x7e00U), h);
    narrow(hn::Or(sign, h), out + i);
  }
  for (; i < n; ++i) out[i] = to_fp16(in[i]);
}

}  // namespace
}  // namespace tithe::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::engine {
TITHE_KERNELS(const Conversions kSimdConversions, bf16_to_floats, fp16_to_floats, floats_to_bf16,
              floats_to_fp16);
}  // namespace tithe::engine
#endif
