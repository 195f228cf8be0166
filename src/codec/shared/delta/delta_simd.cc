// SPDX-License-Identifier: Apache-2.0
// SIMD version of delta_passes.h. Eight states make a vector. In each of them a table lookup gives frequency, distance
// and symbol; the units of the lanes that need one are neighbours in memory, in the order of lanes, so one load and one
// permutation by the mask of these lanes move them in or out.
#include <bit>
#include <cstring>

#include "codec/shared/common/kernels.h"
#include "codec/shared/delta/delta_passes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/delta/delta_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

// Lanes of a permutation, by the mask of the lanes that move a unit.
#ifndef TITHE_CODEC_DELTA_LANES
#define TITHE_CODEC_DELTA_LANES
namespace tithe::delta {
inline constexpr std::size_t kLanes = 8;
using Lanes = std::array<std::array<std::uint32_t, kLanes>, 256>;
// Lane k takes the unit number of the lanes below k in the mask.
constexpr Lanes expand_lanes() {
  Lanes lanes{};
  for (unsigned mask = 0; mask < 256; ++mask)
    for (unsigned k = 0; k < kLanes; ++k)
      lanes[mask][k] = static_cast<std::uint32_t>(std::popcount(mask & ((1U << k) - 1)));
  return lanes;
}
// The last lanes take the lanes of the mask, in their order.
constexpr Lanes compress_lanes() {
  Lanes lanes{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned to = kLanes;
    for (unsigned k = kLanes; k-- > 0;)
      if ((mask >> k & 1U) != 0) lanes[mask][--to] = k;
  }
  return lanes;
}
alignas(32) inline constexpr Lanes kExpand = expand_lanes();
alignas(32) inline constexpr Lanes kCompress = compress_lanes();
}  // namespace tithe::delta
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::delta::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using ShortTag = hn::ScalableTag<std::uint16_t>;
const ShortTag kShorts;
const hn::ScalableTag<std::int16_t> kSigned;
using Shorts = hn::Vec<decltype(kShorts)>;

HWY_INLINE Shorts ordered_of(Shorts v) {
  const auto sign = hn::BitCast(kShorts, hn::ShiftRight<15>(hn::BitCast(kSigned, v)));
  return hn::Xor(v, hn::And(sign, hn::Set(kShorts, 0x7fff)));
}
// Exponents in vectors.
template <class D>
struct ExponentVectors {
  explicit ExponentVectors(const Exponents& of)
      : shift(static_cast<int>(of.shift)),
        mask(hn::Set(D(), static_cast<std::uint16_t>(of.mask))),
        top(hn::Set(D(), static_cast<std::uint16_t>(of.top))),
        last(hn::Set(D(), kClasses - 1)) {}
  HWY_INLINE hn::Vec<D> class_of(hn::Vec<D> v) const {
    return hn::Min(hn::Sub(top, hn::And(hn::ShiftRightSame(v, shift), mask)), last);
  }
  const int shift;
  const hn::Vec<D> mask, top, last;
};

// Calls f with the index of each value that has extra bits; false if there is none.
template <class F>
HWY_INLINE bool each_large(Shorts values, F&& f) {
  std::uint64_t large = 0;
  HWY_ALIGN std::uint8_t bits[8] = {};
  hn::StoreMaskBits(kShorts, hn::Gt(values, hn::Set(kShorts, kDirect - 1)), bits);
  std::memcpy(&large, bits, sizeof(bits));
  if (large == 0) return false;
  for (; large != 0; large &= large - 1) f(static_cast<std::size_t>(std::countr_zero(large)));
  return true;
}

void model(const Exponents& exponents, const std::uint16_t* before, const std::uint16_t* now, std::size_t n,
           Context* contexts, BitWriter& extra) {
  const std::size_t lanes = hn::Lanes(kShorts);
  const ExponentVectors<ShortTag> vectors(exponents);
  HWY_ALIGN std::uint16_t z[hn::MaxLanes(kShorts)];
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const Shorts old = hn::LoadU(kShorts, before + i);
    const Shorts d = hn::Sub(ordered_of(hn::LoadU(kShorts, now + i)), ordered_of(old));
    const Shorts sign = hn::BitCast(kShorts, hn::ShiftRight<15>(hn::BitCast(kSigned, d)));
    const Shorts zigzagged = hn::Xor(hn::Add(d, d), sign);
    const Shorts classes = hn::ShiftLeft<kSymbolBits>(vectors.class_of(old));
    hn::StoreU(hn::Or(classes, hn::And(zigzagged, hn::Set(kShorts, kNoSymbol))), kShorts, contexts + i);
    hn::Store(zigzagged, kShorts, z);
    each_large(zigzagged, [&](std::size_t k) {
      const Symbol of = symbol_of(z[k]);
      contexts[i + k] = static_cast<Context>((contexts[i + k] & ~kNoSymbol) | of.symbol);
      extra.put(of.extra, of.extra_bits);
    });
  }
  kReference.model(exponents, before + i, now + i, n - i, contexts + i, extra);
}

bool move(const std::uint16_t* before, const std::uint16_t* symbols, std::size_t n, BitReader& extra,
          std::uint16_t* now) {
  const std::size_t lanes = hn::Lanes(kShorts);
  HWY_ALIGN std::uint16_t z[hn::MaxLanes(kShorts)];
  bool known = true;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Shorts value = hn::LoadU(kShorts, symbols + i);
    hn::Store(value, kShorts, z);
    const bool any = each_large(value, [&](std::size_t k) {
      known = known && z[k] < kSymbols;
      if (known) z[k] = static_cast<std::uint16_t>(min_of_symbol(z[k]) + extra.read(extra_bits_of(z[k])));
    });
    if (any) value = hn::Load(kShorts, z);
    const Shorts one = hn::Set(kShorts, 1);
    const Shorts d = hn::Xor(hn::ShiftRight<1>(value), hn::Sub(hn::Zero(kShorts), hn::And(value, one)));
    hn::StoreU(ordered_of(hn::Add(ordered_of(hn::LoadU(kShorts, before + i)), d)), kShorts, now + i);
  }
  return known && kReference.move(before + i, symbols + i, n - i, extra, now + i);
}

#if HWY_MAX_BYTES >= 32
const hn::FixedTag<std::uint32_t, kLanes> kWords;
const hn::FixedTag<std::int32_t, kLanes> kSignedWords;
using HalfTag = hn::FixedTag<std::uint16_t, kLanes>;
const HalfTag kHalves;
using Words = hn::Vec<decltype(kWords)>;

HWY_INLINE Words permuted(Words v, const std::uint32_t* lanes) {
  return hn::TableLookupLanes(v, hn::IndicesFromVec(kWords, hn::Load(kWords, lanes)));
}
template <class M>
HWY_INLINE unsigned bits_of(M mask) {
  std::uint8_t bits[8] = {};
  hn::StoreMaskBits(kWords, mask, bits);
  return bits[0];
}
HWY_INLINE Words gathered(const std::uint32_t* table, Words index) {
  return hn::GatherIndex(kWords, table, hn::BitCast(kSignedWords, index));
}
HWY_INLINE Words high_product(Words a, Words b) {
  const hn::Repartition<std::uint64_t, decltype(kWords)> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(kWords, hn::ShiftRight<32>(hn::BitCast(wide, a))),
                               hn::BitCast(kWords, hn::ShiftRight<32>(hn::BitCast(wide, b))));
  return hn::OddEven(hn::BitCast(kWords, odd), hn::BitCast(kWords, hn::ShiftRight<32>(even)));
}
HWY_INLINE auto is_below(Words a, Words b) {
  return hn::RebindMask(kWords, hn::Lt(hn::BitCast(kSignedWords, a), hn::BitCast(kSignedWords, b)));
}

// One vector of states; the new lowest unit.
HWY_INLINE std::uint16_t* code_vector(const EncodeTables& tables, const Context* contexts, Words& x,
                                      std::uint16_t* unit) {
  const Words context = hn::PromoteTo(kWords, hn::LoadU(kHalves, contexts));
  const Words rest = gathered(tables.rest.data(), context);
  const Words reciprocal = gathered(tables.reciprocal.data(), context);
  const Words less = hn::And(rest, hn::Set(kWords, kScale - 1));
  const auto fits = is_below(hn::ShiftRight<kFullBits>(x), hn::Sub(hn::Set(kWords, kScale), less));
  const unsigned full = ~bits_of(fits) & 0xff;
  hn::StoreU(hn::TruncateTo(kHalves, permuted(x, kCompress[full].data())), kHalves, unit - kLanes);
  unit -= std::popcount(full);
  x = hn::IfThenElse(fits, x, hn::ShiftRight<16>(x));
  const Words q = hn::Shr(high_product(x, reciprocal), hn::ShiftRight<23>(rest));
  const Words add = hn::And(hn::ShiftRight<11>(rest), hn::Set(kWords, 0xfff));
  x = hn::Add(hn::Add(x, hn::Mul(q, less)), add);
  return unit;
}

std::uint16_t* code(const EncodeTables& tables, const Context* contexts, std::size_t n, States& states,
                    std::uint16_t* unit) {
  const std::size_t whole = n / kStates * kStates;
  unit = kReference.code(tables, contexts + whole, n - whole, states, unit);
  Words a = hn::LoadU(kWords, states.data()), b = hn::LoadU(kWords, states.data() + kLanes);
  Words c = hn::LoadU(kWords, states.data() + 2 * kLanes), d = hn::LoadU(kWords, states.data() + 3 * kLanes);
  for (std::size_t i = whole; i > 0; i -= kStates) {
    const Context* const at = contexts + i - kStates;
    unit = code_vector(tables, at + 3 * kLanes, d, unit);
    unit = code_vector(tables, at + 2 * kLanes, c, unit);
    unit = code_vector(tables, at + kLanes, b, unit);
    unit = code_vector(tables, at, a, unit);
  }
  hn::StoreU(a, kWords, states.data());
  hn::StoreU(b, kWords, states.data() + kLanes);
  hn::StoreU(c, kWords, states.data() + 2 * kLanes);
  hn::StoreU(d, kWords, states.data() + 3 * kLanes);
  return unit;
}

HWY_INLINE const std::uint8_t* decode_vector(const DecodeTables& tables,
                                             const ExponentVectors<HalfTag>& exponents,
                                             const std::uint16_t* before, Words& x, const std::uint8_t* unit,
                                             std::uint16_t* symbols) {
  const Words slot = hn::And(x, hn::Set(kWords, kScale - 1));
  const auto classes = exponents.class_of(hn::LoadU(kHalves, before));
  const Words table = hn::PromoteTo(kWords, hn::ShiftLeft<kScaleBits>(classes));
  const Words e = gathered(tables[0].data(), hn::Or(table, slot));
  hn::StoreU(hn::TruncateTo(kHalves, hn::ShiftRight<22>(e)), kHalves, symbols);
  const Words scale = hn::Set(kWords, kScale - 1);
  const Words frequency = hn::Add(hn::And(e, scale), hn::Set(kWords, 1));
  const Words distance = hn::And(hn::ShiftRight<11>(e), scale);
  x = hn::Add(hn::Mul(frequency, hn::ShiftRight<kScaleBits>(x)), distance);
  const auto low = is_below(x, hn::Set(kWords, kMinState));
  const unsigned mask = bits_of(low);
  const auto units =
      hn::BitCast(kHalves, hn::LoadU(hn::Repartition<std::uint8_t, decltype(kHalves)>(), unit));
  const Words next = permuted(hn::PromoteTo(kWords, units), kExpand[mask].data());
  x = hn::IfThenElse(low, hn::Or(hn::ShiftLeft<16>(x), next), x);
  return unit + 2 * std::popcount(mask);
}

std::size_t decode(const DecodeTables& tables, const Exponents& exponents, const std::uint16_t* before,
                   std::size_t n, States& states, Units& units, std::uint16_t* symbols) {
  Words a = hn::LoadU(kWords, states.data()), b = hn::LoadU(kWords, states.data() + kLanes);
  Words c = hn::LoadU(kWords, states.data() + 2 * kLanes), d = hn::LoadU(kWords, states.data() + 3 * kLanes);
  const ExponentVectors<HalfTag> vectors(exponents);
  const std::uint8_t *unit = units.at, *const end = units.end;
  std::size_t i = 0;
  for (; i + kStates <= n && end - unit >= static_cast<std::ptrdiff_t>(2 * kStates); i += kStates) {
    unit = decode_vector(tables, vectors, before + i, a, unit, symbols + i);
    unit = decode_vector(tables, vectors, before + i + kLanes, b, unit, symbols + i + kLanes);
    unit = decode_vector(tables, vectors, before + i + 2 * kLanes, c, unit, symbols + i + 2 * kLanes);
    unit = decode_vector(tables, vectors, before + i + 3 * kLanes, d, unit, symbols + i + 3 * kLanes);
  }
  units.at = unit;
  hn::StoreU(a, kWords, states.data());
  hn::StoreU(b, kWords, states.data() + kLanes);
  hn::StoreU(c, kWords, states.data() + 2 * kLanes);
  hn::StoreU(d, kWords, states.data() + 3 * kLanes);
  return i;
}
#else
std::uint16_t* code(const EncodeTables& tables, const Context* contexts, std::size_t n, States& states,
                    std::uint16_t* unit) {
  return kReference.code(tables, contexts, n, states, unit);
}
std::size_t decode(const DecodeTables& tables, const Exponents& exponents, const std::uint16_t* before,
                   std::size_t n, States& states, Units& units, std::uint16_t* symbols) {
  return kReference.decode(tables, exponents, before, n, states, units, symbols);
}
#endif

}  // namespace
}  // namespace tithe::delta::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::delta {
TITHE_KERNELS(const Passes kSimd, model, code, decode, move);
}  // namespace tithe::delta
#endif
