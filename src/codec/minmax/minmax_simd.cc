// SPDX-License-Identifier: Apache-2.0
#include "codec/minmax/minmax.h"
#include "codec/shared/common/kernels.h"

#define HWY_WANT_AVX3_DL  // byte permutes
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/minmax/minmax_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/bit_packing_simd_inl.h"
#include "codec/shared/common/doubles_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::minmax::HWY_NAMESPACE {
namespace {
using namespace bit_packing::HWY_NAMESPACE;

HWY_INLINE VF as_floats(VW code) { return hn::ConvertTo(Floats(), hn::BitCast(Ints(), code)); }
// The upper 24 bits of a draw, as a share of 1.
HWY_INLINE VF share_of(VW draw) {
  return hn::Mul(as_floats(hn::ShiftRight<32 - kDrawBits>(draw)), hn::Set(Floats(), 0x1p-24F));
}
template <unsigned kWidth>
HWY_INLINE VW low_bits(VW code) {
  return hn::And(code, hn::Set(Words(), (1U << kWidth) - 1));
}
HWY_INLINE VW as_words(VF whole_number) { return hn::BitCast(Words(), hn::ConvertTo(Ints(), whole_number)); }

constexpr std::size_t kGroup = 8;  // payloads at a time

// The decoded values for codes of kWidth bits: from a table, if a vector can hold it.
template <unsigned kWidth, typename Real>
class Values {
 public:
  Values() = default;
  HWY_INLINE explicit Values(const Range<Real>& range) : min_(Set(range.min)), gap_(Set(range.gap())) {
    float table[hn::MaxLanes(Floats())] = {};
    for (unsigned code = 0; kTable && code < 1U << kWidth; ++code) table[code] = range.value(code);
    table_ = load(table);
  }
  HWY_INLINE VF of(VW code) const {
    if constexpr (kTable) {
      return hn::TableLookupLanes(table_, hn::IndicesFromVec(Floats(), code));
    } else if constexpr (std::is_same_v<Real, float>) {
      return hn::Add(min_, hn::Mul(as_floats(code), gap_));
    } else {
      const Wide k = widen(as_floats(code));
      return narrow({hn::Add(min_, hn::Mul(k.low, gap_)), hn::Add(min_, hn::Mul(k.high, gap_))});
    }
  }

 private:
  static constexpr bool kTable = (1U << kWidth) <= hn::MaxLanes(Floats());
  static HWY_INLINE VF Set(float v) { return hn::Set(Floats(), v); }
  static HWY_INLINE VD Set(double v) { return hn::Set(Doubles(), v); }

  decltype(Set(Real{})) min_, gap_;
  VF table_;
};

// Range<double>::code in fixed point with kFraction fraction bits. The error of level + draw is less than 4 ulp: 1
// from truncating the draw, 1/2 each from distance, factor and product as floats, and 1/2 from rounding to fixed
// point. If no integer is within that error, the level is right. Otherwise, and if the gap is outside (2^-100,
// 2^100), binary64 decides. One float addition rounds to fixed point, as in block::Steps. If 0 is in the range, that
// addition also subtracts the smallest value: the addend is below 2^24, with an error of 1/2 like the distance.
template <unsigned kWidth>
class Strict {
 public:
  using Real = double;
  HWY_INLINE explicit Strict(const Range<double>& range)
      : low_(hn::Set(Floats(), static_cast<float>(range.min))),
        min_(hn::Set(Doubles(), range.min)),
        max_(hn::Set(Doubles(), range.max)),
        gap_(hn::Set(Doubles(), range.gap())),
        steps_(hn::Set(Doubles(), range.steps)) {
    const bool in_range = range.gap() > 0x1p-100 && range.gap() < 0x1p100;
    const float per = in_range ? static_cast<float>((1 << kFraction) / range.gap()) : 0.0F;
    per_ = hn::Set(Floats(), per);
    behind_ = hn::Set(Words(), in_range ? (1U << kFraction) - 2 * kNear : 0U);
    around_zero_ = range.min <= 0 && range.max >= 0;
    const double begin = 0x1p23 + kNear;
    add_ = hn::Set(Floats(), static_cast<float>(around_zero_ ? begin - range.min * double{per} : begin));
  }
  // The codes of both vectors: a's in the low kWidth bits of the lower halves, b's in those of the upper halves.
  HWY_INLINE VW codes(VF a, VW draw_a, VF b, VW draw_b) const {
    const VW sum_a = summed(a, draw_a), sum_b = summed(b, draw_b);
    if (HWY_LIKELY(hn::AllFalse(Words(), hn::Or(is_near(sum_a), is_near(sum_b)))))
      return in_halves(hn::ShiftRight<kFraction>(sum_a), from_bit_16<kFraction>(sum_b));
    return in_halves(exact(a, draw_a), hn::ShiftLeft<16>(exact(b, draw_b)));
  }

 private:
  static constexpr int kFraction = 23 - static_cast<int>(kWidth);
  static constexpr std::uint32_t kNear = 4;

  // level + draw + kNear: too near an integer means that the fraction is below 2 kNear.
  HWY_INLINE VW summed(VF v, VW draw) const {
    const VF level = hn::MulAdd(around_zero_ ? v : hn::Sub(v, low_), per_, add_);
    return hn::Add(bits(level), hn::ShiftRight<32 - kFraction>(draw));
  }

  HWY_INLINE hn::Mask<Words> is_near(VW sum) const {
    return hn::Eq(hn::And(sum, behind_), hn::Zero(Words()));
  }

  HWY_NOINLINE VW exact(VF v, VW draw) const {
    const auto level = [&](VD at, VD u) HWY_ATTR {
      const VD held = hn::Min(hn::Max(at, min_), max_);
      return hn::Min(hn::Floor(hn::Add(hn::Div(hn::Sub(held, min_), gap_), u)), steps_);
    };
    const Wide at = widen(v);
    const Wide u = widen(share_of(draw));
    return as_words(narrow({level(at.low, u.low), level(at.high, u.high)}));
  }

  VF low_, per_, add_;
  VW behind_;
  bool around_zero_;
  VD min_, max_, gap_, steps_;
};

// Range<float>::code.
template <unsigned kWidth>
class Literal {
 public:
  using Real = float;
  HWY_INLINE explicit Literal(const Range<float>& range)
      : min_(hn::Set(Floats(), range.min)),
        max_(hn::Set(Floats(), range.max)),
        gap_(hn::Set(Floats(), range.gap())),
        steps_(hn::Set(Floats(), range.steps)) {}
  HWY_INLINE VW codes(VF a, VW draw_a, VF b, VW draw_b) const {
    return in_halves(code(a, draw_a), hn::ShiftLeft<16>(code(b, draw_b)));
  }

 private:
  HWY_INLINE VW code(VF v, VW draw) const {
    const VF held = hn::Min(hn::Max(v, min_), max_);
    const VF level = hn::Floor(hn::Add(hn::Div(hn::Sub(held, min_), gap_), share_of(draw)));
    return as_words(hn::Min(level, steps_));
  }

  VF min_, max_, gap_, steps_;
};

// Minimum and maximum with several accumulators, to hide latency. If an end is 0, its sign is that of the first zero,
// as in the reference; SIMD min and max do not distinguish +0 and -0.
template <bool kResidual>
Ends find_as(const EncodeInput& in) {
  if (in.n == 0) return {};
  constexpr std::size_t kAtOnce = 64 / hn::MaxLanes(Floats());
  Peak peak;
  VF low[kAtOnce], high[kAtOnce];
  for (std::size_t k = 0; k < kAtOnce; ++k) low[k] = high[k] = hn::Set(Floats(), in.value(0));
  const auto see = [&](std::size_t at, std::size_t k) HWY_ATTR {
    const VF v = load_value<kResidual>(in, at);
    peak.see(magnitude(v));
    low[k] = hn::Min(low[k], v);
    high[k] = hn::Max(high[k], v);
  };
  std::size_t i = 0;
  for (; i + 64 <= whole(in.n); i += 64) {
    prefetch_ahead<kResidual, 64>(in, i);
    for (std::size_t k = 0; k < kAtOnce; ++k) see(i + k * lanes(), k);
  }
  for (; i < whole(in.n); i += lanes()) see(i, 0);
  for (std::size_t k = 1; k < kAtOnce; ++k) {
    low[0] = hn::Min(low[0], low[k]);
    high[0] = hn::Max(high[0], high[k]);
  }
  Ends ends{hn::GetLane(hn::MinOfLanes(Floats(), low[0])), hn::GetLane(hn::MaxOfLanes(Floats(), high[0]))};
  bool finite = peak.finite();
  for (; i < in.n; ++i) {
    const float v = in.value(i);
    finite = finite && is_finite(v);
    ends.min = std::min(ends.min, v);
    ends.max = std::max(ends.max, v);
  }
  if (!finite) return {.finite = false};
  if (ends.min == 0.0F || ends.max == 0.0F) {  // the sign is that of the first zero
    for (i = 0; in.value(i) != 0.0F;) ++i;
    (ends.min == 0.0F ? ends.min : ends.max) = in.value(i);
    if (ends.max == 0.0F) ends.max = in.value(i);
  }
  return ends;
}

// 32 values at a time as two vectors 16 values apart, whose codes share the words of one vector (store_halves). The
// rest takes the reference path.
template <unsigned kWidth, template <unsigned> typename Math, bool kResidual>
void send_as(const Call& call, const EncodeInput& in, std::uint8_t* HWY_RESTRICT payload) {
  using Real = typename Math<kWidth>::Real;
  const Range<Real> range(payload, kWidth);
  const Math<kWidth> math(range);
  const Values<kWidth, Real> values(range);
  const HighDraws all(block::key(call));
  const bool nearest = static_cast<int>(call.settings[kRound]) != 0;
  const VW half = hn::Set(Words(), 1U << 31);
  const std::size_t vectors = whole_pairs(in.n);
  std::uint8_t* HWY_RESTRICT to = payload + kHead;
  for (std::size_t first = 0; first < vectors; first += HighDraws::kRun) {
    const HighDraws::Run draws(all, first);
    const std::size_t end = std::min(vectors, first + HighDraws::kRun);
    for (std::size_t i = first; i < end; i += 32) {
      prefetch_ahead<kResidual, 32>(in, i);
      for (std::size_t j = i; j < i + 16; j += lanes()) {
        const VF a = load_value<kResidual>(in, j), b = load_value<kResidual>(in, j + 16);
        const VW both =
            nearest ? math.codes(a, half, b, half) : math.codes(a, draws.at(j), b, draws.at_next(j));
        store_halves<kWidth>(both, to, j);
        if (!in.residual_out) continue;
        const VW upper = hn::ShiftRight<16>(both);
        hn::StoreU(hn::Sub(a, values.of(low_bits<kWidth>(both))), Floats(), in.residual_out + j);
        hn::StoreU(hn::Sub(b, values.of(low_bits<kWidth>(upper))), Floats(), in.residual_out + j + 16);
      }
    }
  }
  std::fill(to + vectors * kWidth / 8, to + bit_packing::bytes_for(in.n, kWidth), std::uint8_t{0});
  send_from<Real>(vectors, call, in, payload);
}

template <unsigned kWidth, template <unsigned> typename Math>
void send(const Call& call, const EncodeInput& in, std::uint8_t* payload) {
  const Range<typename Math<kWidth>::Real> range(payload, kWidth);
  if (range.gap() > 0) {
    in.residual ? send_as<kWidth, Math, true>(call, in, payload)
                : send_as<kWidth, Math, false>(call, in, payload);
    return;
  }
  std::fill_n(payload + kHead, bit_packing::bytes_for(in.n, kWidth), std::uint8_t{0});
  const float only = range.value(0);
  for (std::size_t i = 0; i < in.n; ++i) in.store_residual(i, only);
}

template <unsigned kWidth>
bool encode_bits(const Call& call, const EncodeInput& in, std::uint8_t* out) {
  const Ends ends = in.residual ? find_as<true>(in) : find_as<false>(in);
  put_head(call.settings, in.n, ends, out);
  literal(call.settings) ? send<kWidth, Literal>(call, in, out) : send<kWidth, Strict>(call, in, out);
  return ends.finite;
}

bool encode(const Call& call, const EncodeInput& in, std::uint8_t* out) {
  return by_width<1, 2, 4, 8>(bits_of(call.settings),
                              [&](auto width) HWY_ATTR { return encode_bits<width>(call, in, out); });
}

// A payload during a merge: its codes and their values, found once.
template <unsigned kWidth, typename Real>
struct Source {
  const std::uint8_t* codes;
  Values<kWidth, Real> values;
};

// merge() passes byte views; a view here refers to a Source, which has the payload's codes and its table of values.
template <unsigned kWidth, typename Real>
void decode_group(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  using From = Source<kWidth, Real>;
  From sources[kGroup];
  ByteView views[kGroup];
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    const std::uint8_t* payload = payloads[p].data();
    sources[p] = {payload + kHead, Values<kWidth, Real>(Range<Real>(payload, kWidth))};
    views[p] = {reinterpret_cast<const std::uint8_t*>(&sources[p]), sizeof(From)};
  }
  const std::size_t done =
      merge({views, payloads.size()}, how, out, [](const std::uint8_t* p, std::size_t i) HWY_ATTR {
        const From& from = *reinterpret_cast<const From*>(p);
        return from.values.of(load_codes<kWidth>(from.codes, i));
      });
  decode_from<Real>(done, kWidth, payloads, how, out);
}

template <unsigned kWidth>
void decode_bits(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) {
  codec::merge_in_groups(kGroup, payloads, how, out,
                         literal(call.settings) ? decode_group<kWidth, float> : decode_group<kWidth, double>);
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  by_width<1, 2, 4, 8>(bits_of(call.settings),
                       [&](auto width) HWY_ATTR { decode_bits<width>(call, payloads, how, out); });
}

}  // namespace
}  // namespace tithe::minmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::minmax {
TITHE_KERNELS(const block::Kernels kSimd, encode, decode);
}  // namespace tithe::minmax
#endif
