// SPDX-License-Identifier: Apache-2.0
// Levels and codes of codec eden for whole blocks: rounding to codes, packing, and unpacking.
#if defined(TITHE_CODEC_EDEN_CODES_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_EDEN_CODES_SIMD_INL_H_
#undef TITHE_CODEC_EDEN_CODES_SIMD_INL_H_
#else
#define TITHE_CODEC_EDEN_CODES_SIMD_INL_H_
#endif

#include "codec/eden/eden.h"
#include "codec/shared/rotation/rotation_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::eden::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
using namespace rotation::HWY_NAMESPACE;

using Octs = Tag<std::int8_t>;
using UOcts = Tag<std::uint8_t>;
using VI = hn::Vec<Ints>;
using VS = hn::Vec<Shorts>;
using VO = hn::Vec<Octs>;
using VU = hn::Vec<UOcts>;
constexpr std::size_t kOcts = hn::MaxLanes(Octs());  // codes per vector
template <unsigned kBits>
constexpr std::size_t kCodes = Levels{kBits, {}, {}}.bytes(kBlock);  // their bytes in a payload

// ---- From rotated values to codes

// The same 16 bytes in every 128-bit lane of a vector.
template <typename Of>
HWY_INLINE VO table(Of of) {
  HWY_ALIGN std::int8_t each[16];
  for (unsigned k = 0; k < 16; ++k) each[k] = static_cast<std::int8_t>(of(k));
  return hn::LoadDup128(Octs(), each);
}

HWY_INLINE VU octets_at(const std::uint8_t* p) { return hn::LoadU(UOcts(), p); }
HWY_INLINE VU down(VU v, std::size_t bits) {
  const hn::RebindToUnsigned<Shorts> d;
  return hn::BitCast(UOcts(), hn::ShiftRightSame(hn::BitCast(d, v), static_cast<int>(bits)));
}
HWY_INLINE VU up(VU v, std::size_t bits) {
  const hn::RebindToUnsigned<Shorts> d;
  return hn::BitCast(UOcts(), hn::ShiftLeftSame(hn::BitCast(d, v), static_cast<int>(bits)));
}
HWY_INLINE VU low_bits(VU v, unsigned bits) {
  return hn::And(v, hn::Set(UOcts(), static_cast<std::uint8_t>((1U << bits) - 1)));
}

// Narrows two vectors to one of bytes, with saturation; every 16 bytes hold 8 of a, then 8 of b.
HWY_INLINE VO as_octets(VS a, VS b) {
#if HWY_TARGET == HWY_AVX2
  return VO{_mm256_packs_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VO{_mm512_packs_epi16(a.raw, b.raw)};
#else
  const hn::Half<Octs> half;
  return hn::Combine(Octs(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}

// Permutes four vectors narrowed by as_octets to the order of the values.
class InOrder {
 public:
  HWY_INLINE InOrder() {
    constexpr std::size_t kBlocks = kOcts / 16;
    HWY_ALIGN std::int32_t from[hn::MaxLanes(Ints())];
    for (std::size_t k = 0; k < hn::MaxLanes(Ints()); ++k)
      from[k] = static_cast<std::int32_t>(k % kBlocks * 4 + k / kBlocks);
    from_ = hn::Load(Ints(), from);
  }
  HWY_INLINE VO operator()(VO v) const {
    return hn::BitCast(Octs(),
                       hn::TableLookupLanes(hn::BitCast(Ints(), v), hn::IndicesFromVec(Ints(), from_)));
  }

 private:
  VI from_;
};

// The index of a level's magnitude, from a cell number. Among 8 adjacent cells at most one is a border: a table
// lookup finds it.
template <unsigned kBits>
class Numbers {
 public:
  HWY_INLINE explicit Numbers(const Levels& levels)
      : start_(table([&](unsigned k) { return levels.number(static_cast<int>(8 * k)); })),
        below_(table([&](unsigned k) { return border(levels, 8 * k) - 1; })) {}
  HWY_INLINE VO of(VO cell) const {
    const VO eighth = hn::BitCast(Octs(), low_bits(down(hn::BitCast(UOcts(), cell), 3), 4));
    const VO below = hn::TableLookupBytes(below_, eighth);
    return hn::Sub(hn::TableLookupBytes(start_, eighth), hn::VecFromMask(Octs(), hn::Gt(cell, below)));
  }

 private:
  // The border b with from < b < from + 8; 128 if there is none.
  static int border(const Levels& levels, unsigned from) {
    for (const unsigned cell : levels.from)
      if (from < cell && cell < from + 8) return static_cast<int>(cell);
    return 128;
  }
  VO start_;
  VO below_;
};
template <unsigned kBits>
requires(kBits == 2 || kBits == kThree)  // one border
    class Numbers<kBits> {
 public:
  HWY_INLINE explicit Numbers(const Levels& levels)
      : below_(hn::Set(Octs(), static_cast<std::int8_t>(levels.from[0] - 1))) {}
  HWY_INLINE VO of(VO cell) const {
    return hn::Sub(hn::Zero(Octs()), hn::VecFromMask(Octs(), hn::Gt(cell, below_)));
  }

 private:
  VO below_;
};
template <>
class Numbers<1> {
 public:
  HWY_INLINE explicit Numbers(const Levels&) {}
  HWY_INLINE VO of(VO) const { return hn::Zero(Octs()); }
};

// A sum of products of integers.
class Sum {
 public:
  HWY_INLINE Sum() : even_(hn::Zero(Ints())), odd_(hn::Zero(Ints())) {}
  HWY_INLINE void add(VS a, VS b) { even_ = hn::ReorderWidenMulAccumulate(Ints(), a, b, even_, odd_); }
  HWY_INLINE VI all() const { return hn::Add(even_, odd_); }

 private:
  VI even_;
  VI odd_;
};
HWY_INLINE std::int64_t total(const Sum& a, const Sum& b) {  // at most 2^15 43 kBlock
  return hn::GetLane(hn::SumOfLanes(Ints(), hn::Add(a.all(), b.all())));
}

// Writes codes and levels of the rotated values in x, both in the order in which narrowing leaves them; pack() and
// store_residual() restore the order of the values.
template <unsigned kBits, typename Fetch>
HWY_INLINE Products round(const Levels& levels, const float* HWY_RESTRICT x, float steps_per_unit,
                          std::uint8_t* HWY_RESTRICT codes, std::int16_t* HWY_RESTRICT level, Fetch fetch) {
  const VF per = hn::Set(Floats(), steps_per_unit);
  const Numbers<kBits> numbers(levels);
  const VO sizes = table([&](unsigned k) { return k < levels.size.size() ? levels.size[k] : 0; });
  const VO minus = hn::Set(Octs(), static_cast<std::int8_t>(kBits == kThree ? 0 : 1U << (kBits - 1)));
  Sum with_values[2], with_itself[2];
  for (std::size_t i = 0; i < kBlock; i += kOcts) {
    fetch(i);
    VI steps[4];
    for (std::size_t k = 0; k < 4; ++k)
      steps[k] = hn::NearestInt(hn::Mul(hn::Load(Floats(), x + i + k * lanes()), per));
    const VS a = hn::ReorderDemote2To(Shorts(), steps[0], steps[1]);
    const VS b = hn::ReorderDemote2To(Shorts(), steps[2], steps[3]);
    const VO cell = as_octets(hn::ShiftRight<6>(a), hn::ShiftRight<6>(b));
    const VO negative = hn::BroadcastSignBit(cell);
    const VO number = numbers.of(hn::Xor(cell, negative));
    const VO q = hn::Sub(hn::Xor(hn::TableLookupBytes(sizes, number), negative), negative);
    const VO code = kBits == kThree ? hn::Add(number, hn::And(negative, number))
                                    : hn::Or(number, hn::And(negative, minus));
    hn::Store(code, Octs(), reinterpret_cast<std::int8_t*>(codes) + i);
    const VO none = hn::Zero(Octs());
    const VS qa = hn::ShiftRight<8>(hn::BitCast(Shorts(), hn::InterleaveLower(Octs(), none, q)));
    const VS qb = hn::ShiftRight<8>(hn::BitCast(Shorts(), hn::InterleaveUpper(Octs(), none, q)));
    hn::Store(qa, Shorts(), level + i);
    hn::Store(qb, Shorts(), level + i + kOcts / 2);
    with_values[0].add(a, qa);
    with_values[1].add(b, qb);
    with_itself[0].add(qa, qa);
    with_itself[1].add(qb, qb);
  }
  return {total(with_values[0], with_values[1]), total(with_itself[0], with_itself[1])};
}

// ---- Fields: each_field of eden.h, for whole blocks

// Packs bits kFrom .. kFrom + kField - 1 of each code.
template <unsigned kFrom, unsigned kField, unsigned kBits>
HWY_INLINE void pack_field(const std::uint8_t* HWY_RESTRICT codes, std::uint8_t* HWY_RESTRICT out) {
  constexpr std::size_t kFields = 8 / kField, kBytes = kBlock / kFields;
  const InOrder in_order;
  for (std::size_t j = 0; j < kBytes; j += kOcts) {
    VU packed = hn::Zero(UOcts());
    for (std::size_t k = 0; k < kFields; ++k) {
      VU code = octets_at(codes + k * kBytes + j);
      if (kFrom > 0) code = down(code, kFrom);  // with bits of the next code above
      if (kField < kBits) code = low_bits(code, kField);
      packed = hn::Or(packed, up(code, k * kField));
    }
    hn::StoreU(hn::BitCast(UOcts(), in_order(hn::BitCast(Octs(), packed))), UOcts(), out + j);
  }
}
// Five digits per byte. Digits a fifth of the block apart do not align with vectors, so the codes are first put in
// the order of the values; the last vector is shifted back to end with the block.
constexpr std::size_t kFifth = kCodes<kThree>;
template <typename Use>
HWY_INLINE void each_fifth(Use use) {
  for (std::size_t j = 0; j + kOcts < kFifth; j += kOcts) use(j);
  use(kFifth - kOcts);
}
HWY_INLINE void pack_digits(std::uint8_t* HWY_RESTRICT codes, std::uint8_t* HWY_RESTRICT out) {
  const InOrder in_order;
  for (std::size_t i = 0; i < kBlock; i += kOcts)
    hn::Store(hn::BitCast(UOcts(), in_order(hn::BitCast(Octs(), hn::Load(UOcts(), codes + i)))), UOcts(),
              codes + i);
  hn::Store(hn::Zero(UOcts()), UOcts(), codes + kBlock);  // for the last byte, which has four digits
  each_fifth([&](std::size_t j) HWY_ATTR {
    VU sum = octets_at(codes + 4 * kFifth + j);
    for (std::size_t k = 4; k-- > 0;)
      sum = hn::Add(octets_at(codes + k * kFifth + j), hn::Add(sum, hn::Add(sum, sum)));
    hn::StoreU(sum, UOcts(), out + j);
  });
}
template <unsigned kBits>
HWY_INLINE void pack(std::uint8_t* codes, std::uint8_t* out) {
  if constexpr (kBits == kThree) {
    pack_digits(codes, out);
  } else if constexpr (kBits == 3) {
    pack_field<0, 2, 3>(codes, out);
    pack_field<2, 1, 3>(codes, out + kBlock / 4);
  } else {
    pack_field<0, kBits, kBits>(codes, out);
  }
}

// From the highest digit down: a digit is the quotient of the rest by its power of 3.
HWY_INLINE void levels_of_digits(VO of_code, const std::uint8_t* HWY_RESTRICT codes,
                                 std::int8_t* HWY_RESTRICT level) {
  each_fifth([&](std::size_t j) HWY_ATTR {
    VO rest = hn::BitCast(Octs(), hn::Sub(octets_at(codes + j), hn::Set(UOcts(), 128)));  // biased by -128
    for (std::size_t k = 5; k-- > 0;) {
      const VO power = hn::Set(Octs(), static_cast<std::int8_t>(kPowers[k]));
      const VO below = hn::Set(Octs(), static_cast<std::int8_t>(kPowers[k] - 129));
      VO code = hn::Zero(Octs());
      for (int twice = 0; twice < 2; ++twice) {
        const auto goes = hn::Gt(rest, below);
        code = hn::Sub(code, hn::VecFromMask(Octs(), goes));
        rest = hn::Sub(rest, hn::IfThenElseZero(goes, power));
      }
      hn::StoreU(hn::TableLookupBytes(of_code, code), Octs(), level + k * kFifth + j);
    }
  });
}

// The levels of a block's codes. For base-3 digits, writes up to one vector past the block.
template <unsigned kBits>
HWY_INLINE void levels_of(VO of_code, const std::uint8_t* HWY_RESTRICT codes,
                          std::int8_t* HWY_RESTRICT level) {
  if constexpr (kBits == kThree) {
    levels_of_digits(of_code, codes, level);
  } else {
    constexpr unsigned kField = kBits == 3 ? 2 : kBits;
    constexpr std::size_t kFields = 8 / kField, kBytes = kBlock / kFields;
    for (std::size_t k = 0; k < kFields; ++k)
      for (std::size_t j = 0; j < kBytes; j += kOcts) {
        const std::size_t i = k * kBytes + j;
        VU code = low_bits(down(octets_at(codes + j), k * kField), kField);
        if (kBits == 3) {
          constexpr std::size_t kHigh = kBlock / 8;  // bytes
          const VU high = low_bits(down(octets_at(codes + kBytes + i % kHigh), i / kHigh), 1);
          code = hn::Or(code, up(high, 2));
        }
        hn::Store(hn::TableLookupBytes(of_code, hn::BitCast(Octs(), code)), Octs(), level + i);
      }
  }
}

#endif
}  // namespace tithe::eden::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_EDEN_CODES_SIMD_INL_H_
