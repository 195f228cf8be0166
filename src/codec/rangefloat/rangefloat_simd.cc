// SPDX-License-Identifier: Apache-2.0
// N = 8: a code is a byte, and m is at most 6, so the upper half of a float is enough: rounding adds to its bit 22 - m,
// and eps / 2 has no bit below. A block is read from memory once: the first pass finds its range and keeps the upper
// halves; the second pass, in the L1 cache, makes the codes, two vectors at a time.
#include "codec/rangefloat/rangefloat.h"
#include "codec/shared/common/block.h"
#include "codec/shared/common/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/rangefloat/rangefloat_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/floats/range_codes_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::rangefloat::HWY_NAMESPACE {
namespace {
using namespace range::HWY_NAMESPACE;

constexpr std::size_t kBlockBytes = kBlockHead + kBlock;

#if HWY_TARGET == HWY_SCALAR  // has no two lanes to join, and whole() no values for it
template <bool kResidual, bool kResidualOut>
bool encode_one(const Head& head, std::uint32_t given, const EncodeInput& in, std::uint8_t* out) {
  return encode_block(head, given, in, out);
}
#else
using Halves = hn::Repartition<std::uint16_t, Words>;
using SignedHalves = hn::RebindToSigned<Halves>;
using VH = hn::Vec<Halves>;

HWY_INLINE VH half(std::uint32_t v) { return hn::Set(Halves(), static_cast<std::uint16_t>(v)); }

// upper: the upper halves of the sent values; v: the taken values.
HWY_INLINE void store_residual(VF v, VW upper, float* residual_out) {
  hn::StoreU(hn::Sub(v, from_bits(hn::ShiftLeft<16>(upper))), Floats(), residual_out);
}

template <bool kResidual, bool kResidualOut>
bool encode_one(const Head& head, std::uint32_t given, const EncodeInput& in,
                std::uint8_t* HWY_RESTRICT out) {
  const std::size_t step = 2 * lanes();
  const std::size_t vectors = whole(in.n) / step * step;
  HWY_ALIGN std::uint16_t upper[kBlock];
  VH most = hn::Zero(Halves());
  for (std::size_t i = 0; i < vectors; i += step) {
    const VF first = load_value<kResidual>(in, i);
    const VF second = load_value<kResidual>(in, i + lanes());
    const VH both = hn::ConcatOdd(Halves(), hn::BitCast(Halves(), second), hn::BitCast(Halves(), first));
    hn::Store(both, Halves(), upper + i);
    most = hn::Max(most, hn::And(both, half(0x7fff)));
  }
  std::uint32_t own = std::uint32_t{hn::GetLane(hn::MaxOfLanes(Halves(), most))} << 16;
  for (std::size_t i = vectors; i < in.n; ++i) own = std::max(own, magnitude(in.value(i)));

  const Codes codes = Codes::ending_at(head, given ? given : own);
  wire::put(out, codes.base);
  std::uint8_t* at = out + kBlockHead;
  const int shift = codes.shift - 16;
  const VH half_step = half(1U << shift >> 1);
  const VH before = half((codes.base - 1) << shift);
  const VH least = half(1);
  const VH top = half(codes.top - codes.base + 1);
  const VH half_eps = half(codes.half_eps >> 16);
  for (std::size_t i = 0; i < vectors; i += step) {
    hwy::Prefetch(in.grad + i + kBlock);  // else memory would be idle during this pass
    hwy::Prefetch(in.grad + i + kBlock + lanes());
    if (kResidual) hwy::Prefetch(in.residual + i + kBlock);
    if (kResidual) hwy::Prefetch(in.residual + i + kBlock + lanes());
    const VH v = hn::Load(Halves(), upper + i);
    const VH mag = hn::And(v, half(0x7fff));
    const VH negative = hn::BitCast(Halves(), hn::ShiftRight<15>(hn::BitCast(SignedHalves(), v)));
    const auto none = hn::Gt(hn::BitCast(SignedHalves(), half_eps), hn::BitCast(SignedHalves(), mag));
    const VH above = hn::SaturatedSub(hn::Add(mag, half_step), before);
    const VH code = hn::Max(hn::Min(hn::ShiftRightSame(above, shift), top), least);
    const VH signed_code = hn::Add(code, hn::And(negative, half(kPositive8)));
    const auto sent_code = hn::IfThenZeroElse(none, hn::BitCast(SignedHalves(), signed_code));
    const hn::Rebind<std::uint8_t, Halves> bytes;
    hn::StoreU(hn::DemoteTo(bytes, sent_code), bytes, at + i);
    if (!kResidualOut) continue;
    const VH size = hn::Add(hn::ShiftLeftSame(code, shift), before);
    const VH value = hn::Or(size, hn::And(negative, half(0x8000)));
    const VH sent = hn::BitCast(Halves(), hn::IfThenZeroElse(none, hn::BitCast(SignedHalves(), value)));
    const hn::Half<Halves> d;
    const VW first = hn::PromoteTo(Words(), hn::LowerHalf(d, sent));
    const VW second = hn::PromoteTo(Words(), hn::UpperHalf(d, sent));
    store_residual(load_value<kResidual>(in, i), first, in.residual_out + i);
    store_residual(load_value<kResidual>(in, i + lanes()), second, in.residual_out + i + lanes());
  }
  for (std::size_t i = vectors; i < in.n; ++i) {
    const std::uint32_t code = codes.pack(in.value(i));
    at[i] = static_cast<std::uint8_t>(code);
    in.store_residual(i, codes.unpack(code));
  }
  return own <= kLargest;
}
#endif

bool encode(const Head& head, std::uint32_t given, const EncodeInput& in, std::uint8_t* out) {
  const auto one =
      by_residuals(in, [](auto residual, auto residual_out) { return &encode_one<residual, residual_out>; });
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput block = block::part(in, first, std::min(kBlock, in.n - first));
    finite = one(head, given, block, out + first / kBlock * kBlockBytes) && finite;
  }
  return finite;
}

// A vector never crosses the end of a block.
HWY_INLINE VF unpack(const std::uint8_t* payload, std::size_t i) {
  const std::uint8_t* block = payload + kHead + i / kBlock * kBlockBytes;
  const Unpack8 value(payload[1], wire::get<std::uint32_t>(block));
  return value(block + kBlockHead + i % kBlock);
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
TITHE_KERNELS(const Kernels kSimd, encode, decode);
}  // namespace tithe::rangefloat
#endif
