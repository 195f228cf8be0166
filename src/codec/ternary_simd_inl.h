// SPDX-License-Identifier: Apache-2.0
// The vector twin of codec/ternary.h's encode. Beside a Rule it takes a Sends, made from a Pick:
//   sends.at(magnitudes, i)   whether the values from i on go
#if defined(TITHE_CODEC_TERNARY_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_TERNARY_SIMD_INL_H_
#undef TITHE_CODEC_TERNARY_SIMD_INL_H_
#else
#define TITHE_CODEC_TERNARY_SIMD_INL_H_
#endif

#include "codec/block_simd_inl.h"
#include "codec/ternary.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::ternary::HWY_NAMESPACE {
using namespace block::HWY_NAMESPACE;

// Without feedback the next block is asked for while this one is computed: the processor's own prefetcher does not
// look past the pause between two blocks. With feedback that made it slower.
template <typename Sends, bool kResidual, bool kLeft, typename Rule>
HWY_INLINE bool encode_block(const Rule& rule, std::size_t at, const Carry& in, const float* ahead,
                             std::uint8_t* HWY_RESTRICT out) {
  const block::Look found = look<kResidual, Rule::kSum>(in);
  if (!found.finite()) {
    send_nothing(in, out);
    return false;
  }
  const auto pick = rule.pick(found, in.n);
  const Sends sends(pick);
  wire::put(out, pick.scale);
  std::uint8_t* sent = out + kHead;
  std::uint8_t* minus = sent + plane_bytes(in.n);
  const VF scale = hn::Set(Floats(), pick.scale);
  std::size_t i = 0;
  for (; i < whole(in.n) / 16 * 16; i += lanes()) {
    if (!kResidual) hwy::Prefetch(ahead + i);
    const VF v = take<kResidual>(in, i);
    const Mask goes = sends.at(from_bits(magnitude(v)), at + i);
    store_bits(goes, sent, i);
    store_bits(hn::And(goes, hn::Lt(v, hn::Zero(Floats()))), minus, i);
    if (kLeft)
      hn::StoreU(hn::Sub(v, hn::IfThenElseZero(goes, hn::CopySign(scale, v))), Floats(), in.left + i);
  }
  std::fill(sent + i / 8, minus, std::uint8_t{0});
  std::fill(minus + i / 8, minus + plane_bytes(in.n), std::uint8_t{0});
  send_from(i, at, pick, in, out);
  return true;
}

template <typename Sends, bool kResidual, bool kLeft, typename Rule>
bool encode_as(const Rule& rule, const Carry& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry values = block::part(in, first, std::min(kBlock, in.n - first));
    const float* ahead = values.grad + (first + 2 * kBlock <= in.n ? kBlock : 0);
    std::uint8_t* to = out + first / kBlock * kBlockBytes;
    finite = encode_block<Sends, kResidual, kLeft>(rule, first, values, ahead, to) && finite;
  }
  return finite;
}

template <typename Sends, typename Rule>
bool encode_all(const Rule& rule, const Carry& in, std::uint8_t* out) {
  if (in.residual)
    return in.left ? encode_as<Sends, true, true>(rule, in, out)
                   : encode_as<Sends, true, false>(rule, in, out);
  return in.left ? encode_as<Sends, false, true>(rule, in, out)
                 : encode_as<Sends, false, false>(rule, in, out);
}

}  // namespace tithe::ternary::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_TERNARY_SIMD_INL_H_
