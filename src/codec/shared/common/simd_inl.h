// SPDX-License-Identifier: Apache-2.0
// Shared by the SIMD code of the dense codecs. Included after hwy/foreach_target.h, once per target, which is why the
// guard toggles. All loads and stores are unaligned, since users and frames choose the addresses.
//
// SIMD code does whole vectors; the reference's per-value code does the few values after the last whole vector.
#if defined(TITHE_CODEC_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_SIMD_INL_H_
#undef TITHE_CODEC_SIMD_INL_H_
#else
#define TITHE_CODEC_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "tithe/seam/codec.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, as many as base/fold.h has.
using Floats = hn::CappedTag<float, 16>;
using Words = hn::RebindToUnsigned<Floats>;
using VF = hn::Vec<Floats>;
using VW = hn::Vec<Words>;

HWY_INLINE std::size_t lanes() { return hn::Lanes(Floats()); }
// How many of n values lie in whole vectors; 0 where vectors are emulated.
HWY_INLINE std::size_t whole(std::size_t n) {
  constexpr bool kEmulated = HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128;
  return kEmulated ? 0 : n / lanes() * lanes();
}
HWY_INLINE VF load(const float* p) { return hn::LoadU(Floats(), p); }
HWY_INLINE VF load(const std::uint8_t* p) { return hn::LoadU(Floats(), reinterpret_cast<const float*>(p)); }
HWY_INLINE VW bits(VF v) { return hn::BitCast(Words(), v); }
HWY_INLINE VF from_bits(VW v) { return hn::BitCast(Floats(), v); }
HWY_INLINE VW magnitude(VF v) { return hn::And(bits(v), hn::Set(Words(), 0x7fffffffU)); }

template <bool kResidual>
HWY_INLINE VF load_value(const EncodeInput& in, std::size_t i) {
  const VF g = load(in.grad + i);
  return kResidual ? hn::Add(g, load(in.residual + i)) : g;
}

// Calls use(residual, residual_out) with two bool constants: whether the input has a residual, and whether it writes
// one.
template <typename Use>
HWY_INLINE auto by_residuals(const EncodeInput& in, const Use& use) {
  using Yes = std::true_type;
  using No = std::false_type;
  if (in.residual) return in.residual_out ? use(Yes(), Yes()) : use(Yes(), No());
  return in.residual_out ? use(No(), Yes()) : use(No(), No());
}

// Calls use with `width` as a constant, which is one of these widths.
template <unsigned kFirst, unsigned... kOthers, typename Use>
HWY_INLINE auto by_width(unsigned width, const Use& use) {
  if constexpr (sizeof...(kOthers) > 0)
    if (width != kFirst) return by_width<kOthers...>(width, use);
  return use(std::integral_constant<unsigned, kFirst>());
}

// The largest magnitude seen, as bits: 0x7f800000 and above are not finite.
class Peak {
 public:
  HWY_INLINE Peak() : max_(hn::Zero(Words())) {}
  HWY_INLINE void see(VW mag) { max_ = hn::Max(max_, mag); }
  HWY_INLINE bool finite() const { return hn::AllTrue(Words(), hn::Lt(max_, hn::Set(Words(), 0x7f800000U))); }

 private:
  VW max_;
};

// True if a decode writes its output with non-temporal stores: the output is written without being read, and is too
// large to stay in a cache until it is used. It must be aligned to 64 bytes.
constexpr std::size_t kPastCaches = std::size_t{1} << 22;  // values: 16 MiB
HWY_INLINE bool uses_non_temporal_stores(const Merge& merge, std::span<float> out) {
  return merge.base == nullptr && out.size() >= kPastCaches &&
         reinterpret_cast<std::uintptr_t>(out.data()) % 64 == 0;
}
HWY_INLINE void store(VF v, float* out, bool non_temporal) {
  non_temporal ? hn::Stream(v, Floats(), out) : hn::StoreU(v, Floats(), out);
}

// The distance of prefetching in values, for loops where the hardware prefetcher is too late.
constexpr std::size_t kAhead = 1152;
// Prefetches kValues values of the gradient, and of the residual if it is read, from i + kAhead on.
template <bool kResidual, std::size_t kValues>
HWY_INLINE void prefetch_ahead(const EncodeInput& in, std::size_t i) {
  const std::size_t ahead = i + kAhead + kValues <= in.n ? i + kAhead : 0;
  for (std::size_t k = 0; k < kValues; k += 16) {
    hwy::Prefetch(in.grad + ahead + k);
    if (kResidual) hwy::Prefetch(in.residual + ahead + k);
  }
}

// out[i] = (base[i] + p0[i] + p1[i] + ...) / divide for whole vectors; returns how many values it wrote.
// unpack(payload, i) returns a vector of the payload's values from i on. Four vectors at a time hide the latency of
// additions.
template <typename Unpack>
HWY_INLINE std::size_t merge(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out,
                             Unpack unpack) {
  constexpr std::size_t kAtOnce = 4;
  const std::size_t step = lanes();
  const VF divide = hn::Set(Floats(), merge.divide);
  const bool divides = merge.divide != 1.0F;
  const bool non_temporal = uses_non_temporal_stores(merge, out);
  const std::size_t first = merge.base || payloads.empty() ? 0 : 1;
  std::size_t i = 0;
  for (; i + kAtOnce * step <= whole(out.size()); i += kAtOnce * step) {
    if (merge.base && i + kAhead + kAtOnce * step <= out.size())
      for (std::size_t k = 0; k < kAtOnce * step; k += 16) hwy::Prefetch(merge.base + i + kAhead + k);
    VF sum[kAtOnce];
    for (std::size_t k = 0; k < kAtOnce; ++k)
      sum[k] = merge.base   ? load(merge.base + i + k * step)
               : first == 1 ? unpack(payloads[0].data(), i + k * step)
                            : hn::Zero(Floats());
    for (std::size_t p = first; p < payloads.size(); ++p) {
      const std::uint8_t* bytes = payloads[p].data();
      for (std::size_t k = 0; k < kAtOnce; ++k) sum[k] = hn::Add(sum[k], unpack(bytes, i + k * step));
    }
    for (std::size_t k = 0; k < kAtOnce; ++k)
      store(divides ? hn::Div(sum[k], divide) : sum[k], out.data() + i + k * step, non_temporal);
  }
  if (non_temporal) hwy::FlushStream();
  return i;
}

}  // namespace tithe::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_SIMD_INL_H_
