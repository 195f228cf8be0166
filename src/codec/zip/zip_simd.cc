// SPDX-License-Identifier: Apache-2.0
// A block is read from memory once and split into bytes and 16-bit halves that stay in the L1 cache. Exponents are
// counted, coded and escaped as bytes, many per vector.
#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/shared/common/kernels.h"
#include "codec/zip/zip.h"

#define HWY_WANT_AVX3_DL  // compresses, expands and permutes bytes
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/zip/zip_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::zip::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128  // no vectors: the reference does everything

std::size_t encode(const EncodeInput& in, const float*, std::uint8_t* head, std::uint8_t* body,
                   bool& finite) {
  return encode_block(in, head, body, finite);
}
void decode(std::span<Cursor> from, const Merge& how, std::span<float> out, bool) {
  decode_block(from, how, out);
}
std::size_t escapes(const std::uint8_t* codes, unsigned width) { return kReference.escapes(codes, width); }

#else
using namespace simd::HWY_NAMESPACE;

using Halves = hn::Repartition<std::uint16_t, Floats>;
using Octs = hn::Repartition<std::uint8_t, Floats>;
using VH = hn::Vec<Halves>;
using VO = hn::Vec<Octs>;
using Mask = hn::Mask<Octs>;
constexpr std::size_t kOcts = hn::MaxLanes(Octs());  // exponents per vector
constexpr std::size_t kVectors = kBlock / kOcts;
constexpr std::size_t kHalves = hn::MaxLanes(Halves());

HWY_INLINE VO octets(unsigned v) { return hn::Set(Octs(), static_cast<std::uint8_t>(v)); }

// The values of a block, split into parts.
struct Cut {
  HWY_ALIGN std::uint8_t exponent[kBlock];
  HWY_ALIGN std::uint8_t middle[kBlock];
  HWY_ALIGN std::uint16_t lower[kBlock];
  unsigned least, largest;  // exponents
  bool no_lower, zeros;
};

// The mask as bits.
HWY_INLINE std::uint64_t bits_of(Mask mask) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return mask.raw;
#else
  std::uint64_t word = 0;
  hn::StoreMaskBits(Octs(), mask, reinterpret_cast<std::uint8_t*>(&word));
  return word;
#endif
}

// ---- Encode

// Splits the block into exponents, middle bytes and lower halves, and finds the exponents' range. `upper` is rotated
// left by one bit, so that the exponent fills a byte and the sign follows the fraction.
template <bool kResidual, bool kResidualOut>
HWY_INLINE void cut(const EncodeInput& in, const float* ahead, Cut& to) {
  VH any_lower = hn::Zero(Halves()), any_upper = hn::Zero(Halves());
  VO least = octets(kInf), largest = hn::Zero(Octs());
  for (std::size_t i = 0; i < kBlock; i += kOcts) {
    VH upper[2];
    for (std::size_t k = 0; k < 2; ++k) {
      const std::size_t at = i + k * kHalves;
      const VF a = load_value<kResidual>(in, at), b = load_value<kResidual>(in, at + lanes());
      hwy::Prefetch(ahead + at);
      if (kHalves > 16) hwy::Prefetch(ahead + at + lanes());
      if (kResidualOut) {
        hn::StoreU(hn::Sub(a, a), Floats(), in.residual_out + at);
        hn::StoreU(hn::Sub(b, b), Floats(), in.residual_out + at + lanes());
      }
      const VH first = hn::BitCast(Halves(), a), second = hn::BitCast(Halves(), b);
      const VH lower = hn::ConcatEven(Halves(), second, first), high = hn::ConcatOdd(Halves(), second, first);
      hn::Store(lower, Halves(), to.lower + at);
      any_lower = hn::Or(any_lower, lower);
      any_upper = hn::Or(any_upper, high);
      upper[k] = hn::Or(hn::ShiftLeft<1>(high), hn::ShiftRight<15>(high));
    }
    const VO first = hn::BitCast(Octs(), upper[0]), second = hn::BitCast(Octs(), upper[1]);
    const VO exponent = hn::ConcatOdd(Octs(), second, first);
    least = hn::Min(least, exponent);
    largest = hn::Max(largest, exponent);
    hn::Store(exponent, Octs(), to.exponent + i);
    hn::Store(hn::ConcatEven(Octs(), second, first), Octs(), to.middle + i);
  }
  to.no_lower = hn::AllTrue(Halves(), hn::Eq(any_lower, hn::Zero(Halves())));
  to.zeros = to.no_lower && hn::AllTrue(Halves(), hn::Eq(any_upper, hn::Zero(Halves())));
  HWY_ALIGN std::uint8_t each[kOcts];
  hn::Store(largest, Octs(), each);
  to.largest = *std::max_element(each, each + kOcts);
  hn::Store(least, Octs(), each);
  to.least = *std::min_element(each, each + kOcts);
}

// The number of a block's exponents that satisfy `is`.
template <typename Is>
HWY_INLINE std::size_t count(const std::uint8_t* exponents, Is is) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  std::size_t sum = 0;
  for (std::size_t j = 0; j < kVectors; ++j)
    sum += hn::CountTrue(Octs(), is(hn::Load(Octs(), exponents + j * kOcts)));
  return sum;
#else
  VO sum = hn::Zero(Octs());
  for (std::size_t j = 0; j < kVectors; ++j)
    sum = hn::Sub(sum, hn::VecFromMask(Octs(), is(hn::Load(Octs(), exponents + j * kOcts))));
  const hn::Repartition<std::uint64_t, Octs> d;
  return hn::GetLane(hn::SumOfLanes(d, hn::SumsOf8(sum)));
#endif
}

HWY_INLINE Counts counts_of(const Cut& cut) {
  Counts out{.largest = cut.largest};
  see(out, kBlock, [&](unsigned exponent) HWY_ATTR {
    const VO which = octets(exponent);
    return count(cut.exponent, [&](VO e) HWY_ATTR { return hn::Eq(e, which); });
  });
  for (unsigned width = kMinWidth; width <= kMaxWidth && cut.least < span_of(kMaxWidth); ++width) {
    const VO last = octets(span_of(width) - 1);
    out.low[width - kMinWidth] =
        count(cut.exponent, [&](VO e) HWY_ATTR { return hn::Eq(hn::Min(e, last), e); });
  }
  return out;
}

// Appends the exponents of the mask; writes a whole vector of bytes.
HWY_INLINE std::uint8_t* append(std::uint8_t* to, const std::uint8_t* exponents, Mask mask) {
  std::uint64_t remain = bits_of(mask);
#if HWY_TARGET == HWY_AVX3_DL
  _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(remain, _mm512_load_si512(exponents)));
  return to + std::popcount(remain);
#else
  for (; remain != 0; remain &= remain - 1) *to++ = exponents[std::countr_zero(remain)];
  return to;
#endif
}

template <unsigned kWidth>
HWY_INLINE void put_codes(const Cut& cut, unsigned first, std::uint8_t* HWY_RESTRICT planes) {
  std::uint8_t* escaped = planes + kWidth * kBlock / 8;
  const VO from = octets(first), escape = octets(span_of(kWidth));
  for (std::size_t i = 0; i < kBlock; i += kOcts) {
    const VO code = hn::Min(hn::Sub(hn::Load(Octs(), cut.exponent + i), from), escape);
    for (unsigned k = 0; k < kWidth; ++k) {
      const std::uint64_t plane = bits_of(hn::TestBit(code, octets(1U << k)));
      std::memcpy(planes + (k * kBlock + i) / 8, &plane, kOcts / 8);
    }
    escaped = append(escaped, cut.exponent + i, hn::Eq(code, escape));
  }
}

template <bool kResidual, bool kResidualOut>
std::size_t encode_as(const EncodeInput& in, const float* ahead, std::uint8_t* at, std::uint8_t* body,
                      bool& finite) {
  Cut values;
  cut<kResidual, kResidualOut>(in, ahead, values);
  finite = finite && values.largest < kInf;
  if (values.zeros) {
    Head{}.write(at);
    return 0;
  }
  Head head = best_of(counts_of(values), kBlock);
  head.no_lower = values.no_lower;
  head.write(at);
  if (head.width == kWhole)
    std::memcpy(body, values.exponent, kBlock);
  else
    by_width<2, 3, 4>(head.width, [&](auto width) HWY_ATTR { put_codes<width>(values, head.first, body); });
  std::uint8_t* middle = body + head.code_bytes(kBlock) + head.escapes;
  std::memcpy(middle, values.middle, kBlock);
  if (!head.no_lower) std::memcpy(middle + kBlock, values.lower, 2 * kBlock);
  return head.body(kBlock);
}

std::size_t encode(const EncodeInput& in, const float* ahead, std::uint8_t* head, std::uint8_t* body,
                   bool& finite) {
  return by_residuals(in, [&](auto residual, auto residual_out) HWY_ATTR {
    return encode_as<residual, residual_out>(in, ahead, head, body, finite);
  });
}

// ---- Decode

std::size_t escapes(const std::uint8_t* codes, unsigned width) {
  constexpr std::size_t kPlane = kBlock / 8;
  std::size_t count = 0;
  for (std::size_t at = 0; at < kPlane; at += 8) {
    std::uint64_t all = wire::get<std::uint64_t>(codes + at);
    for (unsigned k = 1; k < width; ++k) all &= wire::get<std::uint64_t>(codes + k * kPlane + at);
    count += static_cast<std::size_t>(std::popcount(all));
  }
  return count;
}

// Decodes the exponents of a block from its codes and escapes.
template <unsigned kWidth>
HWY_INLINE void exponents_of(const std::uint8_t* HWY_RESTRICT planes, unsigned first,
                             std::uint8_t* HWY_RESTRICT to) {
  const std::uint8_t* escaped = planes + kWidth * kBlock / 8;
  for (std::size_t i = 0; i < kBlock; i += kOcts) {
    VO e = octets(first);
    std::uint64_t all = ~std::uint64_t{0};
    for (unsigned k = 0; k < kWidth; ++k) {
      const std::uint8_t* plane = planes + (k * kBlock + i) / 8;
      std::uint64_t word = 0;
      std::memcpy(&word, plane, kOcts / 8);
      all &= word;
      e = hn::Add(e, hn::IfThenElseZero(hn::LoadMaskBits(Octs(), plane), octets(1U << k)));
    }
#if HWY_TARGET == HWY_AVX3_DL
    // At least kBlock bytes follow the escapes, so the vector load stays within the payload.
    const auto bytes = _mm512_mask_expand_epi8(e.raw, all, _mm512_loadu_si512(escaped));
    _mm512_store_si512(to + i, bytes);
    escaped += std::popcount(all);
#else
    hn::Store(e, Octs(), to + i);
    for (; all != 0; all &= all - 1) to[i + static_cast<unsigned>(std::countr_zero(all))] = *escaped++;
#endif
  }
}

// Calls put(i, v) with the values of a block, from the given exponents.
template <bool kLower, typename Put>
HWY_INLINE void join(const std::uint8_t* HWY_RESTRICT exponents, const std::uint8_t* HWY_RESTRICT middle,
                     const std::uint8_t* ahead, Put put) {
  const hn::Rebind<std::uint8_t, Halves> octs;
  const hn::Half<Halves> half;
  for (std::size_t i = 0; i < kBlock; i += kHalves) {
    if (i % 32 == 0) {
      hwy::Prefetch(ahead + (kLower ? 7 : 3) * i / 2);
      if (kLower) hwy::Prefetch(ahead + 7 * i / 2 + 64);
    }
    const VH e = hn::PromoteTo(Halves(), hn::LoadU(octs, exponents + i));
    const VH m = hn::PromoteTo(Halves(), hn::LoadU(octs, middle + i));
    const VH upper = hn::Or(hn::Or(hn::ShiftLeft<7>(e), hn::ShiftRight<1>(m)), hn::ShiftLeft<15>(m));
    VW first = hn::ShiftLeft<16>(hn::PromoteTo(Words(), hn::LowerHalf(half, upper)));
    VW second = hn::ShiftLeft<16>(hn::PromoteTo(Words(), hn::UpperHalf(half, upper)));
    if (kLower) {
      const auto* lower = reinterpret_cast<const std::uint16_t*>(middle + kBlock) + i;
      first = hn::Or(first, hn::PromoteTo(Words(), hn::LoadU(half, lower)));
      second = hn::Or(second, hn::PromoteTo(Words(), hn::LoadU(half, lower + lanes())));
    }
    put(i, from_bits(first));
    put(i + lanes(), from_bits(second));
  }
}

// The inverse of cut() for a block of kBlock values.
template <typename Put>
HWY_INLINE void each_value(const Cursor& from, Put put) {
  const Head head = Head::read(from.head);
  if (head.width == kNone) {
    for (std::size_t i = 0; i < kBlock; i += lanes()) put(i, hn::Zero(Floats()));
    return;
  }
  HWY_ALIGN std::uint8_t exponents[kBlock];
  const std::uint8_t* of = head.width == kWhole ? from.body : exponents;
  if (head.width != kWhole)
    by_width<2, 3, 4>(head.width,
                      [&](auto width) HWY_ATTR { exponents_of<width>(from.body, head.first, exponents); });
  const std::uint8_t* middle = from.body + head.code_bytes(kBlock) + head.escapes;
  // The next block, if any, is expected to have about the same size.
  const std::size_t bytes = head.body(kBlock);
  const std::uint8_t* ahead =
      static_cast<std::size_t>(from.end - from.body) < bytes + 4 * kBlock ? from.body : from.body + bytes;
  if (head.no_lower)
    join<false>(of, middle, ahead, put);
  else
    join<true>(of, middle, ahead, put);
}

// Partial sums of a block stay in `sum`, in the L1 cache; only the last payload writes to `out`.
void decode(std::span<Cursor> from, const Merge& how, std::span<float> out, bool non_temporal) {
  if (from.empty()) return decode_block(from, how, out);
  const VF by = hn::Set(Floats(), how.divide);
  const bool divides = how.divide != 1.0F;
  HWY_ALIGN float sum[kBlock];
  float* to = out.data();
  const auto last = [&](std::size_t i, VF v)
                        HWY_ATTR { store(divides ? hn::Div(v, by) : v, to + i, non_temporal); };
  const auto keep = [&](std::size_t i, VF v) HWY_ATTR { hn::Store(v, Floats(), sum + i); };
  const auto first_of = [&](auto put) HWY_ATTR {
    if (how.base == nullptr)
      each_value(from[0], put);
    else
      each_value(from[0], [&](std::size_t i, VF v) HWY_ATTR { put(i, hn::Add(load(how.base + i), v)); });
  };
  const auto next_of = [&](const Cursor& p, auto put) HWY_ATTR {
    each_value(p, [&](std::size_t i, VF v) HWY_ATTR { put(i, hn::Add(hn::Load(Floats(), sum + i), v)); });
  };
  if (from.size() == 1) {
    first_of(last);
  } else {
    first_of(keep);
    for (std::size_t p = 1; p + 1 < from.size(); ++p) next_of(from[p], keep);
    next_of(from.back(), last);
  }
  for (Cursor& p : from) p.skip(kBlock);
}
#endif

}  // namespace
}  // namespace tithe::zip::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::zip {
TITHE_KERNELS(const Kernels kSimd, encode, decode, escapes);
}  // namespace tithe::zip
#endif
