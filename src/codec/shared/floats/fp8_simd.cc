// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include "codec/shared/common/kernels.h"
#include "codec/shared/floats/fp8_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/floats/fp8_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/block_simd_inl.h"
#include "codec/shared/floats/fp8_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::fp8::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_SCALAR  // has no two lanes to join, and whole() no values for it
bool find_scales(std::uint8_t format, const EncodeInput& in, std::uint8_t* scales) {
  return kReference.find_scales(format, in, scales);
}
bool send(std::uint8_t format, const EncodeInput& in, const std::uint8_t* scales, std::uint8_t* codes) {
  return kReference.send(format, in, scales, codes);
}
bool encode(std::uint8_t format, const EncodeInput& in, std::uint8_t* scales, std::uint8_t* codes) {
  return kReference.encode(format, in, scales, codes);
}
void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  kReference.decode(payloads, how, out);
}
#else
using namespace block::HWY_NAMESPACE;

using Halves = hn::Repartition<std::uint16_t, Words>;  // of two vectors
using VH = hn::Vec<Halves>;

HWY_INLINE VW words(std::uint32_t v) { return hn::Set(Words(), v); }

// ---- Scales

// Scales are computed for this many blocks at a time, one per lane.
constexpr std::size_t kGroup = 16;
constexpr std::size_t kGroupValues = kGroup * kBlock;

// A partial group, padded with zeros, which change no scale. Processed one by one, up to 511 values at the end of a
// chunk would take longer than thousands of values before them.
template <bool kResidual>
class Filled {
 public:
  explicit Filled(const EncodeInput& in) : n_(in.n) {
    fill(in.grad, grad_);
    if (kResidual) fill(in.residual, residual_);
    std::memset(scales, kMinScale, sizeof scales);
  }
  EncodeInput whole(bool with_residual = false) {
    return {grad_, kResidual ? residual_ : nullptr, with_residual ? left_ : nullptr, kGroupValues};
  }
  void copy_scales(std::uint8_t* to) const { std::memcpy(to, scales, blocks(n_)); }
  void copy_codes(const EncodeInput& in, std::uint8_t* to) const {
    std::memcpy(to, codes, n_);
    if (in.residual_out != nullptr) std::memcpy(in.residual_out, left_, sizeof(float) * n_);
  }

  std::uint8_t scales[kGroup], codes[kGroupValues];

 private:
  void fill(const float* from, float* to) const {
    std::memcpy(to, from, sizeof(float) * n_);
    std::memset(to + n_, 0, sizeof(float) * (kGroupValues - n_));
  }
  const std::size_t n_;
  HWY_ALIGN float grad_[kGroupValues], residual_[kResidual ? kGroupValues : 1], left_[kGroupValues];
};

template <typename D, typename V>
HWY_INLINE auto largest_in_four(D d, V v) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    return largest_in_four(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

// The scales of a group of blocks: the largest magnitude of each block, reduced across blocks so that one vector
// holds one block per lane, then Format::scale_of.
template <typename Float, bool kResidual>
HWY_INLINE void scan_group(const EncodeInput& in, std::uint8_t* HWY_RESTRICT scales, Peak& peak) {
  const hn::CappedTag<std::uint32_t, 4> fours;
  HWY_ALIGN std::uint32_t most[4 * kGroup];
  for (std::size_t b = 0; b < kGroup; ++b) {
    VW largest = magnitude(load_value<kResidual>(in, b * kBlock));
    for (std::size_t k = lanes(); k < kBlock; k += lanes())
      largest = hn::Max(largest, magnitude(load_value<kResidual>(in, b * kBlock + k)));
    hn::Store(largest_in_four(Words(), largest), fours, most + 4 * b);
  }
  constexpr std::uint32_t kTop = Float::kTop;
  for (std::size_t b = 0; b < kGroup; b += lanes()) {
    VW m0, m1, m2, m3;
    hn::LoadInterleaved4(Words(), most + 4 * b, m0, m1, m2, m3);
    const VW largest = hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
    peak.see(largest);
    const VW exponent = hn::ShiftRight<23>(hn::Add(largest, words(0x1fffffU)));
    const VW held = hn::Min(hn::Max(exponent, words(kMinScale + kTop)), words(Float::kMaxScale + kTop));
    hn::StoreU(last_bytes(hn::Sub(held, words(kTop))), Octets(), scales + b);
  }
}

template <typename Float, bool kResidual>
bool scan_scales(const EncodeInput& in, std::uint8_t* scales) {
  Peak peak;
  std::size_t i = 0;
  for (; i + kGroupValues <= in.n; i += kGroupValues, scales += kGroup)
    scan_group<Float, kResidual>(block::part(in, i, kGroupValues), scales, peak);
  const EncodeInput rest = block::part(in, i, in.n - i);
  if (rest.n <= kBlock) return kReference.find_scales(Float::kNumber, rest, scales) && peak.finite();
  Filled<kResidual> group(rest);
  scan_group<Float, kResidual>(group.whole(), group.scales, peak);
  group.copy_scales(scales);
  return peak.finite();
}

// ---- Codes

// Rounds a magnitude x in the binade from p = 2^e on by adding 2^kShift p: the last bit of the sum has the weight of
// the last bit of a code in that binade. For subnormal codes p is the first normal code. The low bits of the sum are
// the code's mantissa (2^kMantissa or more if x is normal), its exponent is e plus a constant. So its low half plus
// its shifted high half is the code plus a constant; `many` subtracts that constant in the same addition. No product
// is rounded, fused or not.
struct Grid {
  float normal;           // the first normal code
  float many;             // 2^kShift and the constant
  std::uint32_t largest;  // code, as bits of a float
};

template <typename Float>
struct Grids {
  static constexpr std::uint32_t kMaxScale =
      254 - Float::kShift - Float::kTop;  // of others the sum is no float
  std::array<Grid, kMaxScale + 1> at{};   // by scale, from kMinScale on

  constexpr Grids() {
    for (std::uint32_t scale = kMinScale; scale <= kMaxScale; ++scale) {
      const std::uint32_t normal = (Float::kNormal >> 23) + scale - 127;
      const std::uint32_t offset = (normal + Float::kShift) << (23 - Float::kShift);
      at[scale] = {std::bit_cast<float>(normal << 23),
                   std::bit_cast<float>((127U + Float::kShift) << 23 | ((0U - offset) & 0xffU)),
                   (Float::kTop + scale) << 23 | 0x600000U};
    }
  }
};
template <typename Float>
constexpr Grids<Float> kGrids;

HWY_INLINE VH even(VF a, VF b) {
  return hn::ConcatEven(Halves(), hn::BitCast(Halves(), b), hn::BitCast(Halves(), a));
}
HWY_INLINE VH odd(VF a, VF b) {
  return hn::ConcatOdd(Halves(), hn::BitCast(Halves(), b), hn::BitCast(Halves(), a));
}

// kHeld: magnitudes beyond the largest code, and NaN, become the largest code; without kHeld there must be none.
template <bool kHeld>
class Rounding {
 public:
  struct Rounded {
    VF sum;
    VF value;
  };
  HWY_INLINE explicit Rounding(const Grid& grid)
      : normal_(bits(hn::Set(Floats(), grid.normal))),
        many_(hn::Set(Floats(), grid.many)),
        largest_(hn::Set(Words(), grid.largest)) {}
  HWY_INLINE Rounded operator()(VW mag) const {
    const VW held = kHeld ? hn::Min(mag, largest_) : mag;
    const VF binade = from_bits(hn::Max(hn::And(held, hn::Set(Words(), 0x7f800000U)), normal_));
    const VF sum = hn::MulAdd(binade, many_, from_bits(held));
    return {sum, hn::NegMulAdd(binade, many_, sum)};
  }

 private:
  VW normal_;
  VF many_;
  VW largest_;
};

// Stores the codes of two vectors of sums; the codes have the signs of v.
template <typename Float>
HWY_INLINE void store_codes(VF sum0, VF sum1, VF v0, VF v1, std::uint8_t* to) {
  const VH code = hn::Add(even(sum0, sum1), hn::ShiftRight<Float::kShift - 16>(odd(sum0, sum1)));
  const VH sign = hn::ShiftRight<8>(odd(v0, v1));
  const hn::Rebind<std::uint8_t, Halves> octets;
  hn::StoreU(hn::TruncateTo(octets, hn::OrAnd(code, sign, hn::Set(Halves(), 0x80))), octets, to);
}

template <typename Float>
HWY_INLINE bool are_in_grids(const std::uint8_t* scales) {
  const hn::CappedTag<std::uint8_t, kGroup> d;
  const auto scale = hn::LoadU(d, scales);
  const auto held = hn::Min(hn::Max(scale, hn::Set(d, kMinScale)), hn::Set(d, Grids<Float>::kMaxScale));
  return hn::AllTrue(d, hn::Eq(scale, held));
}

// The gradient address to prefetch while a group is sent, inside the gradient, and further ahead than find_scales
// reads. With a quarter less the prefetch is too late; with a quarter more it overtakes the hardware prefetcher.
HWY_INLINE const float* prefetch_address(const EncodeInput& in, std::size_t first) {
  constexpr std::size_t kFurther = 1664;
  return in.grad + (first + kGroupValues + kFurther <= in.n ? first + kFurther : 0);
}

// Sends a group. kHeld: values may be beyond the largest code of their scale.
template <typename Float, bool kResidual, bool kResidualOut, bool kHeld>
HWY_INLINE bool send_group(const EncodeInput& in, const float* ahead, const std::uint8_t* HWY_RESTRICT scales,
                           std::uint8_t* HWY_RESTRICT codes) {
  if (!are_in_grids<Float>(scales)) return kReference.send(Float::kNumber, in, scales, codes);
  Peak peak;
  for (std::size_t first = 0; first < kGroupValues; first += kBlock) {
    const Rounding<kHeld> round(kGrids<Float>.at[scales[first / kBlock]]);
    for (std::size_t i = first; i < first + kBlock; i += 2 * lanes()) {
      const std::size_t j = i + lanes();
      hwy::Prefetch(ahead + i);
      hwy::Prefetch(ahead + j);
      const VF v0 = load_value<kResidual>(in, i), v1 = load_value<kResidual>(in, j);
      const VW mag0 = magnitude(v0), mag1 = magnitude(v1);
      if (kHeld) peak.see(hn::Max(mag0, mag1));
      const auto r0 = round(mag0), r1 = round(mag1);
      store_codes<Float>(r0.sum, r1.sum, v0, v1, codes + i);
      if (!kResidualOut) continue;
      hn::StoreU(hn::Sub(v0, hn::CopySignToAbs(r0.value, v0)), Floats(), in.residual_out + i);
      hn::StoreU(hn::Sub(v1, hn::CopySignToAbs(r1.value, v1)), Floats(), in.residual_out + j);
    }
  }
  return peak.finite();
}

// Whole groups, then one group that is padded with zeros; a rest of at most one block takes the reference path.
template <typename Float, bool kResidual, bool kResidualOut>
bool send_as(const EncodeInput& in, const std::uint8_t* scales, std::uint8_t* codes) {
  bool finite = true;
  std::size_t i = 0;
  for (; i + kGroupValues <= in.n; i += kGroupValues) {
    const float* ahead = prefetch_address(in, i);
    finite = send_group<Float, kResidual, kResidualOut, true>(block::part(in, i, kGroupValues), ahead,
                                                              scales + i / kBlock, codes + i) &&
             finite;
  }
  const EncodeInput rest = block::part(in, i, in.n - i);
  scales += i / kBlock;
  codes += i;
  if (rest.n <= kBlock) return kReference.send(Float::kNumber, rest, scales, codes) && finite;
  Filled<kResidual> group(rest);
  std::memcpy(group.scales, scales, blocks(rest.n));
  const EncodeInput whole = group.whole(kResidualOut);
  finite = send_group<Float, kResidual, kResidualOut, true>(whole, whole.grad, group.scales, group.codes) &&
           finite;
  group.copy_codes(rest, codes);
  return finite;
}

// Scales are computed one group ahead, to hide their latency.
template <typename Float, bool kResidual, bool kResidualOut>
bool encode_as(const EncodeInput& in, std::uint8_t* scales, std::uint8_t* codes) {
  Peak peak;
  const std::size_t groups = in.n / kGroupValues * kGroupValues;
  const auto group = [&](std::size_t i) { return block::part(in, i, kGroupValues); };
  if (groups != 0) scan_group<Float, kResidual>(group(0), scales, peak);
  for (std::size_t i = 0; i < groups; i += kGroupValues) {
    const std::size_t next = i + kGroupValues;
    if (next < groups) scan_group<Float, kResidual>(group(next), scales + next / kBlock, peak);
    const float* ahead = prefetch_address(in, i);
    send_group<Float, kResidual, kResidualOut, false>(group(i), ahead, scales + i / kBlock, codes + i);
  }
  const EncodeInput rest = block::part(in, groups, in.n - groups);
  scales += groups / kBlock;
  codes += groups;
  if (rest.n <= kBlock) return kReference.encode(Float::kNumber, rest, scales, codes) && peak.finite();
  Filled<kResidual> filled(rest);
  const EncodeInput whole = filled.whole(kResidualOut);
  scan_group<Float, kResidual>(whole, filled.scales, peak);
  send_group<Float, kResidual, kResidualOut, false>(whole, whole.grad, filled.scales, filled.codes);
  filled.copy_scales(scales);
  filled.copy_codes(rest, codes);
  return peak.finite();
}

// ---- Values

template <typename Float>
HWY_INLINE VF value(const std::uint8_t* codes) {
  const VN half = widened<Float>(codes);
  // e5m2 has one more code: infinity.
  constexpr int kMaxScale = static_cast<int>(Float::kLargest + Float::kNumber) << kWiden<Float>;
  const auto no_number = hn::Gt(hn::And(half, narrow(0x7fff)), narrow(kMaxScale));
  return promoted(hn::IfThenElse(no_number, hn::OrAnd(narrow(0x7e00), half, narrow(~0x7fff)), half));
}

template <typename Float>
std::size_t decode_as(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t codes = kHead + blocks(out.size());
  return merge(payloads, how, out, [codes](const std::uint8_t* p, std::size_t i) HWY_ATTR {
    const VF scale = hn::Set(Floats(), scale_value(p[kHead + i / kBlock] + kDown<Float>));
    return hn::Mul(value<Float>(p + codes + i), scale);
  });
}

// ---- By format

bool find_scales(std::uint8_t format, const EncodeInput& in, std::uint8_t* scales) {
  return in_format(format, [&]<typename Float>(Float) HWY_ATTR {
    return in.residual ? scan_scales<Float, true>(in, scales) : scan_scales<Float, false>(in, scales);
  });
}

bool send(std::uint8_t format, const EncodeInput& in, const std::uint8_t* scales, std::uint8_t* codes) {
  return in_format(format, [&]<typename Float>(Float) HWY_ATTR {
    return by_residuals(in, [&](auto residual, auto residual_out) HWY_ATTR {
      return send_as<Float, residual, residual_out>(in, scales, codes);
    });
  });
}

bool encode(std::uint8_t format, const EncodeInput& in, std::uint8_t* scales, std::uint8_t* codes) {
  return in_format(format, [&]<typename Float>(Float) HWY_ATTR {
    return by_residuals(in, [&](auto residual, auto residual_out) HWY_ATTR {
      return encode_as<Float, residual, residual_out>(in, scales, codes);
    });
  });
}

// The reference decodes payloads in different formats.
void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::uint8_t format = payloads.empty() ? 0 : payloads[0][0];
  for (const ByteView p : payloads)
    if (p[0] != format) return kReference.decode(payloads, how, out);
  const std::size_t done =
      in_format(format, [&]<typename Float>(Float) HWY_ATTR { return decode_as<Float>(payloads, how, out); });
  const std::size_t n = out.size();
  codec::merge_values(
      payloads, how, out, [n](ByteView p, std::size_t i) { return value_at(p, i, n); }, done);
}
#endif

}  // namespace
}  // namespace tithe::fp8::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::fp8 {
TITHE_EXPORT(find_scales)
TITHE_EXPORT(send)
TITHE_EXPORT(encode)
TITHE_EXPORT(decode)
const Kernels kSimd = {TITHE_KERNEL(find_scales), TITHE_KERNEL(send), TITHE_KERNEL(encode),
                       TITHE_KERNEL(decode), .add = add_simd};
}  // namespace tithe::fp8
#endif
