// SPDX-License-Identifier: Apache-2.0
#include "codec/natural/natural.h"
#include "codec/shared/common/kernels.h"

#define HWY_WANT_AVX3_DL  // byte permutes
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/natural/natural_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/block_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::natural::HWY_NAMESPACE {
namespace {
using namespace block::HWY_NAMESPACE;

// The float with the biased exponent base + k, or 0 where k is 0, and the sign that is bit 31 of `sign`.
HWY_INLINE VF power(VW k, VW base, VW sign) {
  const VW size =
      hn::IfThenZeroElse(hn::Eq(k, hn::Zero(Words())), hn::ShiftLeft<kFraction>(hn::Add(base, k)));
  return from_bits(hn::OrAnd(size, sign, hn::Set(Words(), 0x80000000U)));
}

// v's bytes less those of base, but not below 0. (A vector of one word, which has none, is never used: whole().)
template <typename D = Words>
HWY_INLINE VW bytes_less(VW v, VW base) {
  if constexpr (hn::MaxLanes(Floats()) > 1) {
    const hn::Repartition<std::uint8_t, D> bytes;
    return hn::BitCast(Words(), hn::SaturatedSub(hn::BitCast(bytes, v), hn::BitCast(bytes, base)));
  } else {
    return hn::Sub(v, base);
  }
}

// For blocks whose largest magnitude is below 2^127: the exponent does not overflow into the sign.
template <bool kResidual, bool kResidualOut>
HWY_INLINE void encode_block(std::uint64_t key, std::size_t at, const Carry& in, const float* ahead,
                             std::uint8_t* HWY_RESTRICT out) {
  Draws<kFraction> draws(key, at);
  const VW base = hn::Set(Words(), std::uint32_t{out[0]});
  const VW bases = hn::Set(Words(), std::uint32_t{out[0]} * 0x10001U);
  const auto leave = [&](std::size_t i, VF v, VW k) HWY_ATTR {
    hn::StoreU(hn::Sub(v, power(hn::And(k, hn::Set(Words(), kWindow)), base, bits(v))), Floats(),
               in.residual_out + i);
  };
  // Values i and i + 16 share a word, sign << 8 | exponent from bit 0 and from bit 16 on; nobody reads the rest.
  const auto send = [&](std::size_t i, VW word) HWY_ATTR {
    const VF a = take<kResidual>(in, i);
    const VF b = take<kResidual>(in, i + 16);
    const VW low = hn::ShiftRight<16>(hn::Add(bits(a), draws.upper(word)));
    const VW high = hn::Add(bits(b), draws.lower(word));
    const VW both = hn::OrAnd(low, high, hn::Set(Words(), 0xffff0000U));
    const VW k = bytes_less(hn::ShiftRight<kFraction - 16>(both), bases);  // 0 below the window
    store_two_bytes(hn::OrAnd(k, hn::ShiftRight<1>(k), hn::Set(Words(), 0x00800080U)), out + 1, i);
    if (kResidualOut) leave(i, a, k);
    if (kResidualOut) leave(i + 16, b, hn::ShiftRight<16>(k));
  };
  std::size_t i = 0;
  for (; i < whole_pairs(in.n); i += 32) {
    hwy::Prefetch(ahead + i);
    hwy::Prefetch(ahead + i + 16);
    for (std::size_t k = 0; k < 16; k += lanes()) send(i + k, draws.word());
  }
  send_from(i, at, key, in, out);
}

template <bool kResidual, bool kResidualOut>
bool encode_as(std::uint64_t key, const Carry& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry values = block::part(in, first, std::min(kBlock, in.n - first));
    std::uint8_t* to = out + first / kBlock * kBlockBytes;
    const block::Stats stats = stats_of<kResidual, false>(values);
    if (!stats.finite()) {
      send_nothing(values, to);
      finite = false;
      continue;
    }
    to[0] = static_cast<std::uint8_t>(base_of(stats));
    if (stats.peak >> kFraction < kTopExponent)
      encode_block<kResidual, kResidualOut>(key, first, values, ahead_of(in, first, values.n), to);
    else
      send_from(0, first, key, values, to);
  }
  return finite;
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  const std::uint64_t key = block::key(call);
  if (in.residual)
    return in.residual_out ? encode_as<true, true>(key, in, out) : encode_as<true, false>(key, in, out);
  return in.residual_out ? encode_as<false, true>(key, in, out) : encode_as<false, false>(key, in, out);
}

void decode(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t done = merge(payloads, how, out, [](const std::uint8_t* p, std::size_t i) HWY_ATTR {
    const std::uint8_t* block = p + i / kBlock * kBlockBytes;
    const VW code = hn::PromoteTo(Words(), hn::LoadU(Octets(), block + 1 + i % kBlock));
    const VW k = hn::And(code, hn::Set(Words(), kWindow));
    return power(k, hn::Set(Words(), std::uint32_t{block[0]}), hn::ShiftLeft<24>(code));
  });
  decode_from(done, payloads, how, out);
}

}  // namespace
}  // namespace tithe::natural::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::natural {
TITHE_KERNELS(const block::Kernels kSimd, encode, decode);
}  // namespace tithe::natural
#endif
