// SPDX-License-Identifier: Apache-2.0
// SIMD version of delta_passes.h. Eight states make a vector. The units of the lanes that need one are neighbours in
// memory, in the order of lanes, so one load and one byte shuffle by the mask of these lanes move them in or out.
// Each lane loads its table entry by itself: on AMD Zen a gather takes longer.
//
// Values with extra bits are rare and unpredictable. A mask of each group of 64 values finds them, so a group
// mispredicts one branch.
#include <bit>
#include <cstring>

#include "codec/shared/common/kernels.h"
#include "codec/shared/delta/delta_passes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/delta/delta_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

// Byte shuffles of eight units, by the mask of the lanes that move a unit.
#ifndef TITHE_CODEC_DELTA_SHUFFLES
#define TITHE_CODEC_DELTA_SHUFFLES
namespace tithe::delta {
inline constexpr std::size_t kLanes = 8;
using Shuffles = std::array<std::array<std::uint16_t, kLanes>, 256>;
constexpr std::uint16_t bytes_of_unit(unsigned unit) {
  return static_cast<std::uint16_t>(0x0100 + 0x0202 * unit);
}
// Lane k takes the unit number of the lanes below k in the mask.
constexpr Shuffles expanding() {
  Shuffles out{};
  for (unsigned mask = 0; mask < 256; ++mask)
    for (unsigned k = 0; k < kLanes; ++k)
      out[mask][k] = bytes_of_unit(static_cast<unsigned>(std::popcount(mask & ((1U << k) - 1))));
  return out;
}
// The last lanes take the lanes of the mask, in their order.
constexpr Shuffles compressing() {
  Shuffles out{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned to = kLanes;
    for (unsigned k = kLanes; k-- > 0;)
      if ((mask >> k & 1U) != 0) out[mask][--to] = bytes_of_unit(k);
  }
  return out;
}
alignas(32) inline constexpr Shuffles kExpand = expanding();
alignas(32) inline constexpr Shuffles kCompress = compressing();
}  // namespace tithe::delta
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::delta::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

const hn::CappedTag<std::uint16_t, 2 * kLanes> kShorts;  // two vectors of states
const hn::CappedTag<std::int16_t, 2 * kLanes> kSigned;
using Shorts = hn::Vec<decltype(kShorts)>;

HWY_INLINE Shorts ordered_of(Shorts v) {
  const auto sign = hn::BitCast(kShorts, hn::ShiftRight<15>(hn::BitCast(kSigned, v)));
  return hn::Xor(v, hn::And(sign, hn::Set(kShorts, 0x7fff)));
}
// Exponents in vectors.
struct ExponentVectors {
  explicit ExponentVectors(const Exponents& of)
      : shift(static_cast<int>(of.shift)),
        mask(hn::Set(kShorts, static_cast<std::uint16_t>(of.mask))),
        top(hn::Set(kShorts, static_cast<std::uint16_t>(of.top))) {}
  HWY_INLINE Shorts class_of(Shorts v) const {
    const Shorts e = hn::And(hn::ShiftRightSame(v, shift), mask);
    return hn::Min(hn::SaturatedSub(top, e), hn::Set(kShorts, kClasses - 1));
  }
  const int shift;
  const Shorts mask, top;
};

constexpr std::size_t kGroup = 64;
// Calls f with the index of each value of a group that has extra bits.
template <class F>
HWY_INLINE void each_large(const std::uint16_t* values, F&& f) {
  std::uint64_t large = 0;
  for (std::size_t k = 0; k < kGroup; k += hn::Lanes(kShorts)) {
    std::uint64_t bits = 0;
    HWY_ALIGN std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(kShorts, hn::Gt(hn::LoadU(kShorts, values + k), hn::Set(kShorts, kDirect - 1)), bytes);
    std::memcpy(&bits, bytes, sizeof(bits));
    large |= bits << k;
  }
  for (; large != 0; large &= large - 1) f(static_cast<std::size_t>(std::countr_zero(large)));
}

void model(const Exponents& exponents, const std::uint16_t* before, const std::uint16_t* now, std::size_t n,
           Context* contexts, BitWriter& extra) {
  const ExponentVectors vectors(exponents);
  HWY_ALIGN std::uint16_t z[kGroup];
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    for (std::size_t k = 0; k < kGroup; k += hn::Lanes(kShorts)) {
      const Shorts old = hn::LoadU(kShorts, before + i + k);
      const Shorts d = hn::Sub(ordered_of(hn::LoadU(kShorts, now + i + k)), ordered_of(old));
      const Shorts sign = hn::BitCast(kShorts, hn::ShiftRight<15>(hn::BitCast(kSigned, d)));
      const Shorts zigzagged = hn::Xor(hn::Add(d, d), sign);
      const Shorts classes = hn::ShiftLeft<kSymbolBits>(vectors.class_of(old));
      const Shorts symbols = hn::And(zigzagged, hn::Set(kShorts, kNoSymbol));
      hn::StoreU(hn::Or(classes, symbols), kShorts, contexts + i + k);
      hn::Store(zigzagged, kShorts, z + k);
    }
    each_large(z, [&](std::size_t k) {
      const Symbol of = symbol_of(z[k]);
      contexts[i + k] = static_cast<Context>((contexts[i + k] & ~kNoSymbol) | of.symbol);
      extra.put(of.extra, of.extra_bits);
    });
  }
  kReference.model(exponents, before + i, now + i, n - i, contexts + i, extra);
}

bool move(const std::uint16_t* before, std::uint16_t* symbols, std::size_t n, BitReader& extra,
          std::uint16_t* now) {
  bool known = true;
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    each_large(symbols + i, [&](std::size_t k) {
      const unsigned symbol = symbols[i + k];
      known &= symbol < kSymbols;
      symbols[i + k] = static_cast<std::uint16_t>(min_of_symbol(symbol) + extra.read(extra_bits_of(symbol)));
    });
    for (std::size_t k = i; k < i + kGroup; k += hn::Lanes(kShorts)) {
      const Shorts value = hn::LoadU(kShorts, symbols + k);
      const Shorts odd = hn::And(value, hn::Set(kShorts, 1));
      const Shorts d = hn::Xor(hn::ShiftRight<1>(value), hn::Sub(hn::Zero(kShorts), odd));
      hn::StoreU(ordered_of(hn::Add(ordered_of(hn::LoadU(kShorts, before + k)), d)), kShorts, now + k);
    }
  }
  return known && kReference.move(before + i, symbols + i, n - i, extra, now + i);
}

#if HWY_MAX_BYTES >= 32
const hn::FixedTag<std::uint32_t, kLanes> kWords;
const hn::FixedTag<std::int32_t, kLanes> kSignedWords;
const hn::FixedTag<std::uint64_t, kLanes / 2> kWide;
const hn::FixedTag<std::uint16_t, kLanes> kUnits;
using Words = hn::Vec<decltype(kWords)>;
using Units8 = hn::Vec<decltype(kUnits)>;

template <class M>
HWY_INLINE unsigned bits_of(M mask) {
  std::uint8_t bits[8] = {};
  hn::StoreMaskBits(kWords, mask, bits);
  return bits[0];
}
HWY_INLINE auto is_below(Words a, Words b) {
  return hn::RebindMask(kWords, hn::Lt(hn::BitCast(kSignedWords, a), hn::BitCast(kSignedWords, b)));
}
HWY_INLINE Units8 shuffled(Units8 units, const Shuffles& shuffles, unsigned mask) {
  return hn::TableLookupBytes(units, hn::Load(kUnits, shuffles[mask].data()));
}

// Four elements of the table, one per index.
template <class T, class I>
HWY_INLINE auto looked_up(const T* table, I a, I b, I c, I d) {
  const hn::FixedTag<T, 1> one;
  const hn::FixedTag<T, 2> two;
  const auto low = hn::Combine(two, hn::LoadU(one, table + b), hn::LoadU(one, table + a));
  return hn::Combine(hn::FixedTag<T, 4>(),
                     hn::Combine(two, hn::LoadU(one, table + d), hn::LoadU(one, table + c)), low);
}

// One vector of states; the new lowest unit.
HWY_INLINE std::uint16_t* code_vector(const EncodeTable& table, const Context* contexts, Words& x,
                                      std::uint16_t* unit) {
  const std::uint64_t* const entries = table.data();
  const auto even = looked_up(entries, contexts[0], contexts[2], contexts[4], contexts[6]);
  const auto odd = looked_up(entries, contexts[1], contexts[3], contexts[5], contexts[7]);
  const Words rest = hn::OddEven(hn::BitCast(kWords, hn::ShiftLeft<32>(odd)), hn::BitCast(kWords, even));
  const Words scale = hn::Set(kWords, kScale), less = hn::And(rest, hn::Set(kWords, kScale - 1));
  const auto fits = is_below(hn::Add(hn::ShiftRight<kFullBits>(x), less), scale);
  const unsigned full = ~bits_of(fits) & 0xff;
  hn::StoreU(shuffled(hn::TruncateTo(kUnits, x), kCompress, full), kUnits, unit - kLanes);
  unit -= std::popcount(full);
  x = hn::IfThenElse(fits, x, hn::ShiftRight<16>(x));
  const auto product = [](auto factor, auto entry) {  // of the lower halves
    return hn::MulEven(hn::BitCast(kWords, factor), hn::BitCast(kWords, hn::ShiftRight<32>(entry)));
  };
  const auto wide = hn::BitCast(kWide, x);
  const Words quotient = hn::OddEven(hn::BitCast(kWords, product(hn::ShiftRight<32>(wide), odd)),
                                     hn::BitCast(kWords, hn::ShiftRight<32>(product(wide, even))));
  const Words q = hn::Shr(quotient, hn::ShiftRight<21>(rest));
  const Words add = hn::And(hn::ShiftRight<10>(rest), hn::Set(kWords, 0x7ff));
  x = hn::Add(hn::Add(x, hn::Mul(q, less)), add);
  return unit;
}

std::uint16_t* code(const EncodeTable& table, const Context* contexts, std::size_t n, States& states,
                    std::uint16_t* unit) {
  const std::size_t whole = n / kStates * kStates;
  unit = kReference.code(table, contexts + whole, n - whole, states, unit);
  Words a = hn::LoadU(kWords, states.data()), b = hn::LoadU(kWords, states.data() + kLanes);
  Words c = hn::LoadU(kWords, states.data() + 2 * kLanes), d = hn::LoadU(kWords, states.data() + 3 * kLanes);
  for (std::size_t i = whole; i > 0; i -= kStates) {
    const Context* const at = contexts + i - kStates;
    unit = code_vector(table, at + 3 * kLanes, d, unit);
    unit = code_vector(table, at + 2 * kLanes, c, unit);
    unit = code_vector(table, at + kLanes, b, unit);
    unit = code_vector(table, at, a, unit);
  }
  hn::StoreU(a, kWords, states.data());
  hn::StoreU(b, kWords, states.data() + kLanes);
  hn::StoreU(c, kWords, states.data() + 2 * kLanes);
  hn::StoreU(d, kWords, states.data() + 3 * kLanes);
  return unit;
}

// One vector of states, whose next entry is e.
HWY_INLINE const std::uint8_t* update(Words& x, Words e, const std::uint8_t* unit) {
  const Words frequency = hn::And(e, hn::Set(kWords, 0xffff));
  x = hn::Add(hn::Mul(frequency, hn::ShiftRight<kScaleBits>(x)), hn::ShiftRight<22>(e));
  const auto low = is_below(x, hn::Set(kWords, kMinState));
  const unsigned mask = bits_of(low);
  const auto units = hn::BitCast(kUnits, hn::LoadU(hn::Repartition<std::uint8_t, decltype(kUnits)>(), unit));
  const Words next = hn::PromoteTo(kWords, shuffled(units, kExpand, mask));
  x = hn::IfThenElse(low, hn::Or(hn::ShiftLeft<16>(x), next), x);
  return unit + 2 * std::popcount(mask);
}
HWY_INLINE Words entries_of(const DecodeTables& tables, Units8 base, Words x) {
  const hn::FixedTag<std::uint64_t, 2> two;
  const Words index = hn::Or(hn::PromoteTo(kWords, base), hn::And(x, hn::Set(kWords, kScale - 1)));
  const auto low = hn::LowerHalf(two, hn::BitCast(kWide, index)),
             high = hn::UpperHalf(two, hn::BitCast(kWide, index));
  const std::uint64_t a = hn::GetLane(low), b = hn::ExtractLane(low, 1);
  const std::uint64_t c = hn::GetLane(high), d = hn::ExtractLane(high, 1);
  const std::uint32_t* const table = tables[0].data();
  return hn::Combine(kWords, looked_up(table, c & 0xffffffff, c >> 32, d & 0xffffffff, d >> 32),
                     looked_up(table, a & 0xffffffff, a >> 32, b & 0xffffffff, b >> 32));
}
// Two vectors of states.
HWY_INLINE const std::uint8_t* decode_pair(const DecodeTables& tables, const ExponentVectors& exponents,
                                           const std::uint16_t* before, Words& x, Words& y,
                                           const std::uint8_t* unit, std::uint16_t* symbols) {
  const auto base = hn::ShiftLeft<kScaleBits>(exponents.class_of(hn::LoadU(kShorts, before)));
  const Words e = entries_of(tables, hn::LowerHalf(kUnits, base), x);
  const Words f = entries_of(tables, hn::UpperHalf(kUnits, base), y);
  const auto symbol = [](Words entry) {
    return hn::TruncateTo(kUnits, hn::And(hn::ShiftRight<16>(entry), hn::Set(kWords, kNoSymbol)));
  };
  hn::StoreU(symbol(e), kUnits, symbols);
  hn::StoreU(symbol(f), kUnits, symbols + kLanes);
  return update(y, f, update(x, e, unit));
}

std::size_t decode(const DecodeTables& tables, const Exponents& exponents, const std::uint16_t* before,
                   std::size_t n, States& states, Units& units, std::uint16_t* symbols) {
  Words a = hn::LoadU(kWords, states.data()), b = hn::LoadU(kWords, states.data() + kLanes);
  Words c = hn::LoadU(kWords, states.data() + 2 * kLanes), d = hn::LoadU(kWords, states.data() + 3 * kLanes);
  const ExponentVectors vectors(exponents);
  const std::uint8_t *unit = units.at, *const end = units.end;
  std::size_t i = 0;
  for (; i + kStates <= n && end - unit >= static_cast<std::ptrdiff_t>(2 * kStates); i += kStates) {
    unit = decode_pair(tables, vectors, before + i, a, b, unit, symbols + i);
    unit = decode_pair(tables, vectors, before + i + 2 * kLanes, c, d, unit, symbols + i + 2 * kLanes);
  }
  units.at = unit;
  hn::StoreU(a, kWords, states.data());
  hn::StoreU(b, kWords, states.data() + kLanes);
  hn::StoreU(c, kWords, states.data() + 2 * kLanes);
  hn::StoreU(d, kWords, states.data() + 3 * kLanes);
  return i;
}
#else
std::uint16_t* code(const EncodeTable& table, const Context* contexts, std::size_t n, States& states,
                    std::uint16_t* unit) {
  return kReference.code(table, contexts, n, states, unit);
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
