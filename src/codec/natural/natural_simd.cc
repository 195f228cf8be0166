// SPDX-License-Identifier: Apache-2.0
#include "codec/natural/natural.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/natural/natural_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/block_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::natural::HWY_NAMESPACE {
namespace {
using namespace block::HWY_NAMESPACE;

using Octets = hn::Rebind<std::uint8_t, Floats>;

// The float with this exponent and the sign that is bit 31 of `sign`; 0 where keeps is false.
HWY_INLINE VF power(VW exponent, hn::Mask<Words> keeps, VW sign) {
  const VW size = hn::IfThenElseZero(keeps, hn::ShiftLeft<kFraction>(exponent));
  return from_bits(hn::Or(size, hn::And(sign, hn::Set(Words(), 0x80000000U))));
}

template <bool kResidual, bool kLeft>
HWY_INLINE bool encode_block(const Draws& draws, std::uint64_t key, std::size_t at, const Carry& in,
                             const float* ahead, std::uint8_t* HWY_RESTRICT out) {
  const block::Look found = look<kResidual, false>(in);
  if (!found.finite()) {
    send_nothing(in, out);
    return false;
  }
  out[0] = static_cast<std::uint8_t>(base_of(found));
  const VW base = hn::Set(Words(), base_of(found));
  const VW top = hn::Set(Words(), kTopExponent);
  std::size_t i = 0;
  for (; i < whole(in.n); i += lanes()) {
    if (!kResidual) hwy::Prefetch(ahead + i);
    const VF v = take<kResidual>(in, i);
    const VW draw = hn::ShiftRight<32 - kFraction>(draws.at(at + i));
    const VW up = hn::ShiftRight<kFraction>(hn::Add(magnitude(v), draw));
    const VW exponent = hn::Max(hn::Min(up, top), base);
    const VW sign = hn::And(hn::ShiftRight<24>(bits(v)), hn::Set(Words(), 128U));
    const VW code = hn::Or(hn::Sub(exponent, base), sign);
    hn::StoreU(hn::TruncateTo(Octets(), code), Octets(), out + 1 + i);
    if (kLeft)
      hn::StoreU(hn::Sub(v, power(exponent, hn::Ne(exponent, base), bits(v))), Floats(), in.left + i);
  }
  send_from(i, at, key, in, out);
  return true;
}

template <bool kResidual, bool kLeft>
bool encode_as(std::uint64_t key, const Carry& in, std::uint8_t* out) {
  const Draws draws(key);
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry values = block::part(in, first, std::min(kBlock, in.n - first));
    const float* ahead = values.grad + (first + 2 * kBlock <= in.n ? kBlock : 0);
    std::uint8_t* to = out + first / kBlock * kBlockBytes;
    finite = encode_block<kResidual, kLeft>(draws, key, first, values, ahead, to) && finite;
  }
  return finite;
}

bool encode(std::uint64_t key, const Carry& in, std::uint8_t* out) {
  if (in.residual)
    return in.left ? encode_as<true, true>(key, in, out) : encode_as<true, false>(key, in, out);
  return in.left ? encode_as<false, true>(key, in, out) : encode_as<false, false>(key, in, out);
}

void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t done = merge(payloads, how, out, [](const std::uint8_t* p, std::size_t i) HWY_ATTR {
    const std::uint8_t* block = p + i / kBlock * kBlockBytes;
    const VW code = hn::PromoteTo(Words(), hn::LoadU(Octets(), block + 1 + i % kBlock));
    const VW k = hn::And(code, hn::Set(Words(), kWindow));
    const VW exponent = hn::Add(k, hn::Set(Words(), std::uint32_t{block[0]}));
    return power(exponent, hn::Ne(k, hn::Zero(Words())), hn::ShiftLeft<24>(code));
  });
  decode_from(done, payloads, how, out);
}

}  // namespace
}  // namespace tithe::natural::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::natural {

HWY_EXPORT(encode);
HWY_EXPORT(decode);

bool encode_simd(const Call& call, const Carry& in, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode)(block::key(call), in, out);
}
void decode_simd(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(decode)(payloads, how, out);
}

}  // namespace tithe::natural
#endif
