// SPDX-License-Identifier: Apache-2.0
// SIMD versions of codec/shared/floats/half.h. A Pack converts vector by vector:
//   pack(v, out)   stores v as 16-bit floats and returns the rounded values
//   unpack(p)      loads a vector of 16-bit floats
#if defined(TITHE_CODEC_HALF_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_HALF_SIMD_INL_H_
#undef TITHE_CODEC_HALF_SIMD_INL_H_
#else
#define TITHE_CODEC_HALF_SIMD_INL_H_
#endif

#include "codec/shared/common/simd_inl.h"
#include "codec/shared/floats/half.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::half::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;

using Halves = hn::Rebind<std::uint16_t, Floats>;

HWY_INLINE auto load_halves(const std::uint8_t* p) {
  return hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(p));
}
HWY_INLINE void store_halves(hn::Vec<Halves> v, std::uint8_t* p) {
  hn::StoreU(v, Halves(), reinterpret_cast<std::uint16_t*>(p));
}

template <typename Format, typename Pack, bool kResidual, bool kResidualOut>
bool encode_as(const EncodeInput& in, std::uint8_t* HWY_RESTRICT out) {
  Peak peak;
  std::size_t i = 0;
  for (; i < whole(in.n); i += lanes()) {
    const VF v = load_value<kResidual>(in, i);
    peak.see(magnitude(v));
    const VF sent = Pack::pack(v, out + 2 * i);
    if (kResidualOut) hn::StoreU(hn::Sub(v, sent), Floats(), in.residual_out + i);
  }
  return encode_from<Format>(i, in, out) && peak.finite();
}

template <typename Format, typename Pack>
bool encode_all(const EncodeInput& in, std::uint8_t* out) {
  if (in.residual) {
    return in.residual_out ? encode_as<Format, Pack, true, true>(in, out)
                           : encode_as<Format, Pack, true, false>(in, out);
  }
  return in.residual_out ? encode_as<Format, Pack, false, true>(in, out)
                         : encode_as<Format, Pack, false, false>(in, out);
}

template <typename Format, typename Pack>
void decode_all(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t done = merge(payloads, how, out, [](const std::uint8_t* p, std::size_t i) HWY_ATTR {
    return Pack::unpack(p + 2 * i);
  });
  decode_from<Format>(done, payloads, how, out);
}

template <typename Format, typename Pack, bool kResidualOut>
bool combine_as(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* residual_out) {
  Peak peak;
  std::size_t i = 0;
  for (; i < whole(n); i += lanes()) {
    const VF sum = hn::Add(Pack::unpack(acc + 2 * i), Pack::unpack(in + 2 * i));
    peak.see(magnitude(sum));
    const VF sent = Pack::pack(sum, acc + 2 * i);
    if (!kResidualOut) continue;
    const VF now = hn::Add(load(residual_out + i), hn::Sub(sum, sent));
    peak.see(magnitude(now));
    hn::StoreU(now, Floats(), residual_out + i);
  }
  return combine_from<Format>(i, n, acc, in, residual_out) && peak.finite();
}

template <typename Format, typename Pack>
bool combine_all(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* residual_out) {
  return residual_out ? combine_as<Format, Pack, true>(n, acc, in, residual_out)
                      : combine_as<Format, Pack, false>(n, acc, in, residual_out);
}

}  // namespace tithe::half::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_HALF_SIMD_INL_H_
