// SPDX-License-Identifier: Apache-2.0
// N = 8: a code is a byte. A block is read from memory once: the first pass finds its range, the second one, in the
// nearest cache, makes its codes.
#include "codec/rangefloat/rangefloat.h"
#include "codec/raw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/rangefloat/rangefloat_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::rangefloat::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::bits;
using simd::HWY_NAMESPACE::Floats;
using simd::HWY_NAMESPACE::from_bits;
using simd::HWY_NAMESPACE::lanes;
using simd::HWY_NAMESPACE::take;
using simd::HWY_NAMESPACE::VF;
using simd::HWY_NAMESPACE::VW;
using simd::HWY_NAMESPACE::whole;
using simd::HWY_NAMESPACE::Words;

using Ints = hn::RebindToSigned<Floats>;
using Quarters = hn::Rebind<std::uint8_t, Floats>;

constexpr std::size_t kBlockBytes = kBlockHead + kBlock;
constexpr std::uint32_t kPositive = 127;

HWY_INLINE VW set(std::uint32_t v) { return hn::Set(Words(), v); }
HWY_INLINE VW sizes(VF v) { return hn::And(bits(v), set(0x7fffffffU)); }
HWY_INLINE VW negatives(VF v) {  // all bits of a negative value's lane
  return hn::BitCast(Words(), hn::ShiftRight<31>(hn::BitCast(Ints(), v)));
}

template <bool kResidual, bool kLeft>
bool encode_one(const Head& head, std::uint32_t given, const Carry& in, std::uint8_t* HWY_RESTRICT out) {
  const std::size_t vectors = whole(in.n);
  VW most = hn::Zero(Words());
  for (std::size_t i = 0; i < vectors; i += lanes()) most = hn::Max(most, sizes(take<kResidual>(in, i)));
  std::uint32_t own = hn::GetLane(hn::MaxOfLanes(Words(), most));
  for (std::size_t i = vectors; i < in.n; ++i) own = std::max(own, magnitude(in.take(i)));

  const Codes codes = Codes::ending_at(head, given ? given : own);
  wire::put(out, codes.base);
  std::uint8_t* at = out + kBlockHead;
  const VW half_step = set(1U << (codes.shift - 1));
  const VW base = set(codes.base);
  const VW top = set(codes.top);
  const VW before = set(codes.base - 1);
  const auto half_eps = hn::Set(Ints(), static_cast<std::int32_t>(codes.half_eps));
  for (std::size_t i = 0; i < vectors; i += lanes()) {
    hwy::Prefetch(in.grad + i + kBlock);  // memory would wait while this pass computes
    if (kResidual) hwy::Prefetch(in.residual + i + kBlock);
    const VF v = take<kResidual>(in, i);
    const VW mag = sizes(v);
    const VW negative = negatives(v);
    const auto none = hn::RebindMask(Words(), hn::Gt(half_eps, hn::BitCast(Ints(), mag)));
    const VW near = hn::ShiftRightSame(hn::Add(mag, half_step), codes.shift);
    const VW steps = hn::Max(hn::Min(near, top), base);
    const VW code = hn::Add(hn::Sub(steps, before), hn::And(negative, set(kPositive)));
    const VW sent_code = hn::IfThenZeroElse(none, code);
    hn::StoreU(hn::TruncateTo(Quarters(), sent_code), Quarters(), at + i);
    if (!kLeft) continue;
    const VW value = hn::Or(hn::ShiftLeftSame(steps, codes.shift), hn::And(negative, set(0x80000000U)));
    hn::StoreU(hn::Sub(v, from_bits(hn::IfThenZeroElse(none, value))), Floats(), in.left + i);
  }
  for (std::size_t i = vectors; i < in.n; ++i) {
    const std::uint32_t code = codes.pack(in.take(i));
    at[i] = static_cast<std::uint8_t>(code);
    in.leave(i, codes.unpack(code));
  }
  return own <= kLargest;
}

bool encode(const Head& head, std::uint32_t given, const Carry& in, std::uint8_t* out) {
  const auto one = in.residual ? (in.left ? encode_one<true, true> : encode_one<true, false>)
                               : (in.left ? encode_one<false, true> : encode_one<false, false>);
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry block = {in.grad + first, in.residual ? in.residual + first : nullptr,
                         in.left ? in.left + first : nullptr, std::min(kBlock, in.n - first)};
    finite = one(head, given, block, out + first / kBlock * kBlockBytes) && finite;
  }
  return finite;
}

// A vector never crosses a block's end.
HWY_INLINE VF unpack(const std::uint8_t* payload, std::size_t i) {
  const std::uint8_t* block = payload + kHead + i / kBlock * kBlockBytes;
  const int shift = 23 - payload[1];
  const auto base = wire::get<std::uint32_t>(block);
  const VW top = set(std::min(base + kPositive - 1, kLargest >> shift));
  const VW code = hn::PromoteTo(Words(), hn::LoadU(Quarters(), block + kBlockHead + i % kBlock));
  const auto signed_code = hn::BitCast(Ints(), code);
  const auto some = hn::RebindMask(Words(), hn::Gt(signed_code, hn::Zero(Ints())));
  const auto minus = hn::RebindMask(Words(), hn::Gt(signed_code, hn::Set(Ints(), 127)));
  const VW past = hn::Add(hn::Sub(code, hn::IfThenElseZero(minus, set(kPositive))), set(base - 1));
  const VW value =
      hn::Or(hn::ShiftLeftSame(hn::Min(past, top), shift), hn::IfThenElseZero(minus, set(0x80000000U)));
  return from_bits(hn::IfThenElseZero(some, value));
}

void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t done = simd::HWY_NAMESPACE::merge(
      payloads, how, out, [](const std::uint8_t* p, std::size_t i) HWY_ATTR { return unpack(p, i); });
  codec::merge_values(payloads, how, out, value_at, done);
}

}  // namespace
}  // namespace tithe::rangefloat::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::rangefloat {

HWY_EXPORT(encode);
HWY_EXPORT(decode);

bool encode_simd(const Head& head, std::uint32_t largest, const Carry& in, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode)(head, largest, in, out);
}
void decode_simd(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(decode)(payloads, how, out);
}

}  // namespace tithe::rangefloat
#endif
