// SPDX-License-Identifier: Apache-2.0
#include "codec/minmax/minmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/minmax/minmax_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/codes_simd_inl.h"
#include "codec/doubles_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::minmax::HWY_NAMESPACE {
namespace {
using namespace codes::HWY_NAMESPACE;

using VI = hn::Vec<Ints>;

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

// What codes of kWidth bits stand for: from a table, where a vector holds it.
template <unsigned kWidth, typename Real>
class Values {
 public:
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

// Range<double>::code in fixed point, kFraction bits behind the point. The sum of level and draw is off by less than 3
// of its last places: 1 for what is cut off the draw, 1/2 for rounding, 3/4 for the rounded distance, factor and
// product. Where no whole number is so near, the level is right. Elsewhere, and where the gap is no comfortable float,
// binary64 decides. One float addition rounds to the point, as in block::Steps.
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
    const bool comfortable = range.gap() > 0x1p-100 && range.gap() < 0x1p100;
    per_ = hn::Set(Floats(), comfortable ? static_cast<float>((1 << kFraction) / range.gap()) : 0.0F);
    near_ = hn::Set(Ints(), comfortable ? 3 << (32 - kFraction) : std::numeric_limits<std::int32_t>::max());
  }
  // In the last kWidth bits.
  HWY_INLINE VW code(VF v, VW draw) const {
    const VF level = hn::MulAdd(hn::Sub(v, low_), per_, hn::Set(Floats(), 0x1.8p23F));
    const VW sum = hn::Add(bits(level), hn::ShiftRight<32 - kFraction>(draw));
    const VI behind = hn::BitCast(Ints(), hn::ShiftLeft<32 - kFraction>(sum));
    if (HWY_LIKELY(hn::AllFalse(Ints(), hn::Lt(hn::Abs(behind), near_))))
      return hn::ShiftRight<kFraction>(sum);
    return exact(v, draw);
  }

 private:
  static constexpr int kFraction = 22 - static_cast<int>(kWidth);

  HWY_NOINLINE VW exact(VF v, VW draw) const {
    const auto level = [&](VD at, VD u) HWY_ATTR {
      const VD held = hn::Min(hn::Max(at, min_), max_);
      return hn::Min(hn::Floor(hn::Add(hn::Div(hn::Sub(held, min_), gap_), u)), steps_);
    };
    const Wide at = widen(v);
    const Wide u = widen(share_of(draw));
    return as_words(narrow({level(at.low, u.low), level(at.high, u.high)}));
  }

  VF low_, per_;
  VI near_;
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
  HWY_INLINE VW code(VF v, VW draw) const {
    const VF held = hn::Min(hn::Max(v, min_), max_);
    const VF level = hn::Floor(hn::Add(hn::Div(hn::Sub(held, min_), gap_), share_of(draw)));
    return as_words(hn::Min(level, steps_));
  }

 private:
  VF min_, max_, gap_, steps_;
};

template <bool kResidual>
Ends find_as(const Carry& in) {
  if (in.n == 0) return {};
  Peak peak;
  VF low = hn::Set(Floats(), in.take(0));
  VF high = low;
  std::size_t i = 0;
  for (; i < whole(in.n); i += lanes()) {
    const VF v = take<kResidual>(in, i);
    peak.see(magnitude(v));
    low = hn::Min(low, v);
    high = hn::Max(high, v);
  }
  Ends ends{hn::GetLane(hn::MinOfLanes(Floats(), low)), hn::GetLane(hn::MaxOfLanes(Floats(), high))};
  bool finite = peak.finite();
  for (; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    ends.min = std::min(ends.min, v);
    ends.max = std::max(ends.max, v);
  }
  if (!finite) return {.finite = false};
  if (ends.min == 0.0F || ends.max == 0.0F) {  // the sign is that of the first zero
    for (i = 0; in.take(i) != 0.0F;) ++i;
    (ends.min == 0.0F ? ends.min : ends.max) = in.take(i);
    if (ends.max == 0.0F) ends.max = in.take(i);
  }
  return ends;
}

template <unsigned kWidth, template <unsigned> typename Math, bool kResidual>
void send_as(const Call& call, const Carry& in, std::uint8_t* HWY_RESTRICT payload) {
  using Real = typename Math<kWidth>::Real;
  const Range<Real> range(payload, kWidth);
  const Math<kWidth> math(range);
  const Values<kWidth, Real> values(range);
  const HighDraws draws(block::key(call));
  const bool nearest = call.settings[kRound] != 0;
  const std::size_t vectors = whole_pairs(in.n);
  std::uint8_t* HWY_RESTRICT to = payload + kHead;
  const auto send_one = [&](std::size_t i) HWY_ATTR {
    const VF v = take<kResidual>(in, i);
    const VW code = math.code(v, nearest ? hn::Set(Words(), 1U << 31) : draws.at(i));
    store_codes<kWidth>(code, to, i);
    if (in.left) hn::StoreU(hn::Sub(v, values.of(low_bits<kWidth>(code))), Floats(), in.left + i);
  };
  for (std::size_t i = 0; i < vectors; i += 32) {
    const float* ahead = ahead_of(in, i, 32);
    if (!kResidual) hwy::Prefetch(ahead);
    if (!kResidual) hwy::Prefetch(ahead + 16);
    for (std::size_t k = 0; k < 32; k += lanes()) send_one(i + k);
  }
  std::fill(to + vectors * kWidth / 8, to + codes::bytes_for(in.n, kWidth), std::uint8_t{0});
  send_from<Real>(vectors, call, in, payload);
}

template <unsigned kWidth, template <unsigned> typename Math>
void send(const Call& call, const Carry& in, std::uint8_t* payload) {
  const Range<typename Math<kWidth>::Real> range(payload, kWidth);
  if (range.gap() > 0) {
    in.residual ? send_as<kWidth, Math, true>(call, in, payload)
                : send_as<kWidth, Math, false>(call, in, payload);
    return;
  }
  std::fill_n(payload + kHead, codes::bytes_for(in.n, kWidth), std::uint8_t{0});
  const float only = range.value(0);
  for (std::size_t i = 0; i < in.n; ++i) in.leave(i, only);
}

template <unsigned kWidth>
bool encode_bits(const Call& call, const Carry& in, std::uint8_t* out) {
  const Ends ends = in.residual ? find_as<true>(in) : find_as<false>(in);
  put_head(call.settings, in.n, ends, out);
  literal(call.settings) ? send<kWidth, Literal>(call, in, out) : send<kWidth, Strict>(call, in, out);
  return ends.finite;
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  switch (bits_of(call.settings)) {
    case 1:
      return encode_bits<1>(call, in, out);
    case 2:
      return encode_bits<2>(call, in, out);
    case 4:
      return encode_bits<4>(call, in, out);
    default:
      return encode_bits<8>(call, in, out);
  }
}

template <unsigned kWidth, typename Real>
void decode_as(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t done = merge(payloads, how, out, [](const std::uint8_t* p, std::size_t i) HWY_ATTR {
    return Values<kWidth, Real>(Range<Real>(p, kWidth)).of(load_codes<kWidth>(p + kHead, i));
  });
  decode_from<Real>(done, kWidth, payloads, how, out);
}

template <unsigned kWidth>
void decode_bits(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) {
  literal(call.settings) ? decode_as<kWidth, float>(payloads, how, out)
                         : decode_as<kWidth, double>(payloads, how, out);
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  switch (bits_of(call.settings)) {
    case 1:
      return decode_bits<1>(call, payloads, how, out);
    case 2:
      return decode_bits<2>(call, payloads, how, out);
    case 4:
      return decode_bits<4>(call, payloads, how, out);
    default:
      return decode_bits<8>(call, payloads, how, out);
  }
}

}  // namespace
}  // namespace tithe::minmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::minmax {

HWY_EXPORT(encode);
HWY_EXPORT(decode);

bool encode_simd(const Call& call, const Carry& in, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode)(call, in, out);
}
void decode_simd(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(decode)(call, payloads, how, out);
}

}  // namespace tithe::minmax
#endif
