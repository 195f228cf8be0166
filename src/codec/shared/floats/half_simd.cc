// SPDX-License-Identifier: Apache-2.0
// SIMD versions of codec/shared/floats/half.h, for the codecs bf16 and fp16. A Pack converts vector by vector:
//   pack(v, out)   stores v as 16-bit floats and returns the rounded values
//   unpack(p)      loads a vector of 16-bit floats
#include "codec/bf16/bf16.h"
#include "codec/fp16/fp16.h"
#include "codec/shared/common/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/floats/half_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::half::HWY_NAMESPACE {
namespace {
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
  return by_residuals(in, [&](auto residual, auto residual_out)
                              HWY_ATTR { return encode_as<Format, Pack, residual, residual_out>(in, out); });
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

}  // namespace
}  // namespace tithe::half::HWY_NAMESPACE

namespace tithe::bf16::HWY_NAMESPACE {
namespace {
using namespace half::HWY_NAMESPACE;

struct Pack {
  static HWY_INLINE VF pack(VF v, std::uint8_t* out) {
    const VW mag = magnitude(v);
    const VW odd = hn::And(hn::ShiftRight<16>(mag), hn::Set(Words(), 1U));
    const VW up = hn::Add(hn::Add(mag, hn::Set(Words(), 0x7fffU)), odd);
    const VW held = hn::Min(up, hn::Set(Words(), kLargest << 16 | 0xffffU));
    const VW sign = hn::AndNot(hn::Set(Words(), 0x7fffffffU), bits(v));
    const VW sent = hn::Or(hn::And(held, hn::Set(Words(), 0xffff0000U)), sign);
    store_halves(hn::TruncateTo(Halves(), hn::ShiftRight<16>(sent)), out);
    return from_bits(sent);
  }
  static HWY_INLINE VF unpack(const std::uint8_t* p) {
    return from_bits(hn::ShiftLeft<16>(hn::PromoteTo(Words(), load_halves(p))));
  }
};

bool encode(const EncodeInput& in, std::uint8_t* out) { return encode_all<Format, Pack>(in, out); }
void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  decode_all<Format, Pack>(payloads, how, out);
}
bool combine(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* residual_out) {
  return combine_all<Format, Pack>(n, acc, in, residual_out);
}

}  // namespace
}  // namespace tithe::bf16::HWY_NAMESPACE

namespace tithe::fp16::HWY_NAMESPACE {
namespace {
using namespace half::HWY_NAMESPACE;

// The processor's own conversions round to nearest even, and keep denormals, as Format does.
struct Pack {
  using Native = hn::Rebind<hwy::float16_t, Floats>;
  static HWY_INLINE VF pack(VF v, std::uint8_t* out) {
    const VW held = hn::Min(magnitude(v), hn::Set(Words(), kLargest));
    const VW sign = hn::AndNot(hn::Set(Words(), 0x7fffffffU), bits(v));
    const auto h = hn::DemoteTo(Native(), from_bits(hn::Or(held, sign)));
    store_halves(hn::BitCast(Halves(), h), out);
    return hn::PromoteTo(Floats(), h);
  }
  static HWY_INLINE VF unpack(const std::uint8_t* p) {
    return hn::PromoteTo(Floats(), hn::BitCast(Native(), load_halves(p)));
  }
};

bool encode(const EncodeInput& in, std::uint8_t* out) { return encode_all<Format, Pack>(in, out); }
void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  decode_all<Format, Pack>(payloads, how, out);
}
bool combine(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* residual_out) {
  return combine_all<Format, Pack>(n, acc, in, residual_out);
}

}  // namespace
}  // namespace tithe::fp16::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe {
namespace bf16 {
TITHE_KERNELS(const half::Kernels kSimd, encode, decode, combine);
}
namespace fp16 {
TITHE_KERNELS(const half::Kernels kSimd, encode, decode, combine);
}
}  // namespace tithe
#endif
