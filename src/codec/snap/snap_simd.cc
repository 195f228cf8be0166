// SPDX-License-Identifier: Apache-2.0
#include "codec/common/kernels.h"
#include "codec/snap/snap.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/snap/snap_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::snap::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

using Ints = hn::RebindToSigned<Floats>;

// Truncation to a multiple of a unit clears the bits below it: as many of the mantissa as the value's exponent is away
// from the unit's. Where that is more than the mantissa has, nothing is left.
struct Snap {
  explicit Snap(const Classes& c)
      : low(edge(c.low)),
        middle(edge(c.middle)),
        top(edge(c.top)),
        unit{unit_bits(c.unit[0]), unit_bits(c.unit[1])} {}
  static hn::Vec<Ints> edge(std::uint32_t bits) {
    return hn::Set(Ints(), static_cast<std::int32_t>(bits) - 1);
  }
  static VW unit_bits(float unit) {
    return hn::Set(Words(), (std::bit_cast<std::uint32_t>(unit) >> kMantissa) + kMantissa);
  }
  HWY_INLINE hn::Mask<Words> reaches(VW mag, hn::Vec<Ints> last_below) const {
    return hn::RebindMask(Words(), hn::Gt(hn::BitCast(Ints(), mag), last_below));
  }
  HWY_INLINE VF operator()(VF v) const {
    const VW mag = magnitude(v);
    const VW away =
        hn::Sub(hn::IfThenElse(reaches(mag, middle), unit[1], unit[0]), hn::ShiftRight<kMantissa>(mag));
    const VW below =
        hn::Sub(hn::Shl(hn::Set(Words(), 1U), hn::And(away, hn::Set(Words(), 31U))), hn::Set(Words(), 1U));
    const auto some =
        hn::And(reaches(mag, low), hn::Lt(away, hn::Set(Words(), std::uint32_t{kMantissa + 1})));
    const auto full = reaches(mag, top);
    const VW size = hn::IfThenElse(full, mag, hn::IfThenElseZero(some, hn::AndNot(below, mag)));
    const VW sign = hn::AndNot(hn::Set(Words(), 0x7fffffffU), bits(v));
    return from_bits(hn::IfThenElseZero(hn::Or(full, some), hn::Or(size, sign)));
  }
  static constexpr int kMantissa = 23;
  hn::Vec<Ints> low, middle, top;  // each the last magnitude below that edge: signed compares are everywhere
  VW unit[2];
};

template <bool kResidual, bool kResidualOut>
bool encode_as(const Classes& c, const Carry& in, std::uint8_t* HWY_RESTRICT out) {
  const Snap snap(c);
  Peak peak;
  std::size_t i = 0;
  for (; i < whole(in.n); i += lanes()) {
    const VF v = take<kResidual>(in, i);
    peak.see(magnitude(v));
    const VF sent = snap(v);
    hn::StoreU(sent, Floats(), reinterpret_cast<float*>(out + 4 * i));
    if (kResidualOut) hn::StoreU(hn::Sub(v, sent), Floats(), in.residual_out + i);
  }
  return encode_from(i, c, in, out) && peak.finite();
}

bool encode(const Classes& c, const Carry& in, std::uint8_t* out) {
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
