// SPDX-License-Identifier: Apache-2.0
// SIMD version of encode in codec/terngrad/ternary.h. Besides a Rule it takes a Sends, made from a Pick:
//   Sends::can(pick)           whether SIMD can encode this block
//   Sends(pick, first)         for the block that starts at value `first`
//   sends.two()                draws shared by a vector of values i and the vector of values i + 16; the order of Draws
//   sends.at<kUpper>(v, two)   the Choice for values i (kUpper) or i + 16
#if defined(TITHE_CODEC_TERNARY_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_TERNARY_SIMD_INL_H_
#undef TITHE_CODEC_TERNARY_SIMD_INL_H_
#else
#define TITHE_CODEC_TERNARY_SIMD_INL_H_
#endif

#include "codec/shared/common/block_simd_inl.h"
#include "codec/terngrad/ternary.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::ternary::HWY_NAMESPACE {
using namespace block::HWY_NAMESPACE;

struct Choice {
  Mask sent;
  Mask minus;  // a subset of `sent`
};

template <typename Sends, bool kResidual, bool kResidualOut, typename Pick>
HWY_INLINE void encode_block(const Pick& pick, std::size_t at, const Carry& in, const float* ahead,
                             std::uint8_t* HWY_RESTRICT out) {
  Sends sends(pick, at);
  wire::put(out, pick.scale);
  std::uint8_t* sent = out + kHead;
  std::uint8_t* minus = sent + plane_bytes(in.n);
  const VF scale = hn::Set(Floats(), pick.scale);
  const auto send = [&](std::size_t i, VF v, Choice choice) HWY_ATTR {
    store_bits(choice.sent, sent, i);
    store_bits(choice.minus, minus, i);
    if (kResidualOut)
      hn::StoreU(hn::IfThenElse(choice.sent, hn::Sub(v, hn::CopySign(scale, v)), v), Floats(),
                 in.residual_out + i);
  };
  std::size_t i = 0;
  for (; i < whole_pairs(in.n); i += 32) {
    hwy::Prefetch(ahead + i);
    hwy::Prefetch(ahead + i + 16);
    for (std::size_t k = 0; k < 16; k += lanes()) {
      const auto two = sends.two();
      const VF a = take<kResidual>(in, i + k);
      const VF b = take<kResidual>(in, i + k + 16);
      send(i + k, a, sends.template at<true>(a, two));
      send(i + k + 16, b, sends.template at<false>(b, two));
    }
  }
  std::fill(sent + i / 8, minus, std::uint8_t{0});
  std::fill(minus + i / 8, minus + plane_bytes(in.n), std::uint8_t{0});
  send_from(i, at, pick, in, out);
}

template <typename Sends, bool kResidual, bool kResidualOut, typename Rule>
bool encode_as(const Rule& rule, const Carry& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry values = block::part(in, first, std::min(kBlock, in.n - first));
    std::uint8_t* to = out + first / kBlock * kBlockBytes;
    const block::Stats stats = stats_of<kResidual, Rule::kSum>(values);
    if (!stats.finite()) {
      finite = false;
      send_nothing(values, to);
      continue;
    }
    const auto pick = rule.pick(stats, values.n);
    if (Sends::can(pick))
      encode_block<Sends, kResidual, kResidualOut>(pick, first, values, ahead_of(in, first, values.n), to);
    else
      send_block(pick, first, values, to);
  }
  return finite;
}

template <typename Sends, typename Rule>
bool encode_all(const Rule& rule, const Carry& in, std::uint8_t* out) {
  if (in.residual)
    return in.residual_out ? encode_as<Sends, true, true>(rule, in, out)
                           : encode_as<Sends, true, false>(rule, in, out);
  return in.residual_out ? encode_as<Sends, false, true>(rule, in, out)
                         : encode_as<Sends, false, false>(rule, in, out);
}

}  // namespace tithe::ternary::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_TERNARY_SIMD_INL_H_
