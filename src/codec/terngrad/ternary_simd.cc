// SPDX-License-Identifier: Apache-2.0
#include "codec/terngrad/ternary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/terngrad/ternary_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/block_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::ternary::HWY_NAMESPACE {
namespace {
using namespace block::HWY_NAMESPACE;

void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t n = out.size();
  const VW own = own_bits();
  const std::size_t done = merge(payloads, how, out, [n, own](const std::uint8_t* p, std::size_t i) HWY_ATTR {
    const std::size_t first = i / kBlock * kBlock;
    const std::uint8_t* block = p + first / kBlock * kBlockBytes;
    const std::uint8_t* sent = block + kHead;
    const Mask minus = load_bits(sent + plane_bytes(std::min(kBlock, n - first)), i - first, own);
    const VF scale = hn::Set(Floats(), wire::get<float>(block));
    const VF value = hn::IfThenElse(minus, hn::Neg(scale), scale);
    return hn::IfThenElseZero(load_bits(sent, i - first, own), value);
  });
  codec::merge_values(
      payloads, how, out, [n](ByteView p, std::size_t i) { return value_of(p.data(), n, i); }, done);
}

}  // namespace
}  // namespace tithe::ternary::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::ternary {

HWY_EXPORT(decode);

void decode_simd(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(decode)(payloads, how, out);
}

}  // namespace tithe::ternary
#endif
