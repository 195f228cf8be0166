// SPDX-License-Identifier: Apache-2.0
#include "card/model/snap.h"
#include "codec/shared/common/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "card/model/snap_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::snap::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

using Ints = hn::RebindToSigned<Floats>;

// Truncates a value to whole units of its class by a conversion to integers. Values of the two unit classes have less
// than 2^15 units, so every step is exact, and a conversion gives no negative zero.
struct Snap {
  explicit Snap(const Classes& c) : low(edge(c.low)), middle(edge(c.middle)), top(edge(c.top)) {
    for (int wide = 0; wide < 2; ++wide) {
      unit[wide] = hn::Set(Floats(), c.unit[wide]);
      per_unit[wide] = hn::Set(Floats(), c.per_unit[wide]);
    }
  }
  static hn::Vec<Ints> edge(std::uint32_t bits) {
    return hn::Set(Ints(), static_cast<std::int32_t>(bits) - 1);
  }
  static HWY_INLINE hn::Mask<Floats> reaches(VW mag, hn::Vec<Ints> last_below) {
    return hn::RebindMask(Floats(), hn::Gt(hn::BitCast(Ints(), mag), last_below));
  }
  HWY_INLINE VF operator()(VF v, VW mag) const {
    const auto wide = reaches(mag, middle);
    const VF units = hn::Mul(v, hn::IfThenElse(wide, per_unit[1], per_unit[0]));
    const VF whole_units = hn::ConvertTo(Floats(), hn::ConvertTo(Ints(), units));
    const VF cut = hn::Mul(whole_units, hn::IfThenElse(wide, unit[1], unit[0]));
    return hn::IfThenElse(reaches(mag, top), v, hn::IfThenElseZero(reaches(mag, low), cut));
  }
  hn::Vec<Ints> low, middle, top;  // each the last magnitude below its edge: all targets have signed compares
  VF unit[2], per_unit[2];
};

template <std::size_t kVectors, bool kResidual, bool kResidualOut>
HWY_INLINE void encode_vectors(const Snap& snap, const EncodeInput& in, std::size_t i,
                               std::uint8_t* HWY_RESTRICT out, bool non_temporal, Peak& peak) {
  VF v[kVectors], sent[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k) {
    v[k] = load_value<kResidual>(in, i + k * lanes());
    const VW mag = magnitude(v[k]);
    peak.see(mag);
    sent[k] = snap(v[k], mag);
  }
  for (std::size_t k = 0; k < kVectors; ++k) {
    const std::size_t at = i + k * lanes();
    store(sent[k], reinterpret_cast<float*>(out) + at, non_temporal);
    if (kResidualOut) hn::StoreU(hn::Sub(v[k], sent[k]), Floats(), in.residual_out + at);
  }
}

// Loads four vectors before it stores them: streams with equal offsets in their pages then delay each other less.
template <bool kResidual, bool kResidualOut>
bool encode_as(const Classes& c, const EncodeInput& in, std::uint8_t* HWY_RESTRICT out) {
  constexpr std::size_t kAtOnce = 4;
  const Snap snap(c);
  const bool non_temporal = uses_non_temporal_stores({}, {reinterpret_cast<float*>(out), in.n});
  Peak peak;
  std::size_t i = 0;
  for (; i + kAtOnce * lanes() <= whole(in.n); i += kAtOnce * lanes())
    encode_vectors<kAtOnce, kResidual, kResidualOut>(snap, in, i, out, non_temporal, peak);
  for (; i < whole(in.n); i += lanes())
    encode_vectors<1, kResidual, kResidualOut>(snap, in, i, out, non_temporal, peak);
  if (non_temporal) hwy::FlushStream();
  return encode_from(i, c, in, out) && peak.finite();
}

bool encode(const Classes& c, const EncodeInput& in, std::uint8_t* out) {
  if (in.residual)
    return in.residual_out ? encode_as<true, true>(c, in, out) : encode_as<true, false>(c, in, out);
  return in.residual_out ? encode_as<false, true>(c, in, out) : encode_as<false, false>(c, in, out);
}

void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t done = merge(
      payloads, how, out, [](const std::uint8_t* p, std::size_t i) HWY_ATTR { return load(p + 4 * i); });
  decode_from(done, payloads, how, out);
}

}  // namespace
}  // namespace tithe::snap::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::snap {
TITHE_KERNELS(const Kernels kSimd, encode, decode);
}  // namespace tithe::snap
#endif
