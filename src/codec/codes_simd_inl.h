// SPDX-License-Identifier: Apache-2.0
// The vector twins of codec/codes.h: a vector's codes, in the last kWidth bits of its words.
#if defined(TITHE_CODEC_CODES_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_CODES_SIMD_INL_H_
#undef TITHE_CODEC_CODES_SIMD_INL_H_
#else
#define TITHE_CODEC_CODES_SIMD_INL_H_
#endif

#include "base/bytes.h"
#include "codec/block_simd_inl.h"
#include "codec/codes.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::codes::HWY_NAMESPACE {
using namespace block::HWY_NAMESPACE;

// Two codes of 4 bits make a byte where there are two lanes.
constexpr bool kPairs = hn::MaxLanes(Floats()) > 1;

// A byte for each lane, eight of them in a word; the last word may have bytes of no lane.
constexpr std::size_t kEights = (hn::MaxLanes(Floats()) + 7) / 8;
struct Eights {
  std::uint64_t word[kEights];
};
template <typename D = Octets>
HWY_INLINE Eights eights_of(VW v) {
  const auto octets = last_bytes(v);
  Eights to{};
  if constexpr (hn::MaxLanes(D()) >= 8) {
    const hn::Repartition<std::uint64_t, D> longs;
    for (std::size_t k = 0; k < kEights; ++k) to.word[k] = hn::ExtractLane(hn::BitCast(longs, octets), k);
  } else {
    hn::StoreU(octets, D(), reinterpret_cast<std::uint8_t*>(to.word));
  }
  return to;
}
#if HWY_TARGET == HWY_SCALAR  // has no halves
HWY_INLINE VW from_eights(Eights from) { return hn::Set(Words(), static_cast<std::uint8_t>(from.word[0])); }
#else
template <typename D = Octets>
HWY_INLINE VW from_eights(Eights from) {
  if constexpr (hn::MaxLanes(D()) >= 8) {
    const hn::Repartition<std::uint64_t, D> longs;
    const hn::CappedTag<std::uint64_t, 1> one;
    if constexpr (kEights == 1)
      return hn::PromoteTo(Words(), hn::BitCast(D(), hn::Set(longs, from.word[0])));
    else
      return hn::PromoteTo(Words(), hn::BitCast(D(), hn::Combine(longs, hn::Set(one, from.word[1]),
                                                                 hn::Set(one, from.word[0]))));
  } else {
    const hn::Repartition<std::uint32_t, D> word;
    return hn::PromoteTo(Words(), hn::BitCast(D(), hn::Set(word, static_cast<std::uint32_t>(from.word[0]))));
  }
}
#endif

// Codes of any width, from code i on, a multiple of lanes(): eight of them start and end with a byte; four may begin
// in the middle of one.
HWY_INLINE void store_eights(Eights codes, unsigned width, std::uint8_t* HWY_RESTRICT out, std::size_t i) {
  std::uint8_t* to = out + i * width / 8;
  if (lanes() >= 8) {
    for (std::size_t k = 0; k < kEights; ++k) {
      const std::uint64_t packed = pack8(codes.word[k], width);
      std::memcpy(to + k * width, &packed, width);
    }
  } else {
    const std::size_t shift = i * width % 8;
    const std::uint64_t packed = pack8(codes.word[0], width) << shift | (shift != 0 ? *to : 0U);
    std::memcpy(to, &packed, (lanes() * width + 7) / 8);
  }
}
HWY_INLINE Eights load_eights(const std::uint8_t* packed, unsigned width, std::size_t i) {
  const std::uint8_t* from = packed + i * width / 8;
  Eights codes{};
  if (lanes() >= 8) {
    for (std::size_t k = 0; k < kEights; ++k) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + k * width, width);
      codes.word[k] = unpack8(word, width);
    }
  } else {
    std::uint64_t word = 0;
    std::memcpy(&word, from, (lanes() * width + 7) / 8);
    codes.word[0] = unpack8(word >> (i * width % 8), width);
  }
  return codes;
}

// Puts the codes of the values from i on.
template <unsigned kWidth, typename D = Floats>
HWY_INLINE void store_codes(VW code, std::uint8_t* HWY_RESTRICT out, std::size_t i) {
  if constexpr (kWidth == 8) {
    hn::StoreU(last_bytes(code), Octets(), out + i);
  } else if constexpr (kWidth == 4 && kPairs) {
    using Doubles = hn::Repartition<std::uint64_t, D>;
    using PairOctets = hn::Rebind<std::uint8_t, Doubles>;
    const auto pairs = hn::BitCast(Doubles(), hn::And(code, hn::Set(Words(), 15U)));
    hn::StoreU(hn::TruncateTo(PairOctets(), hn::Or(pairs, hn::ShiftRight<28>(pairs))), PairOctets(),
               out + i / 2);
  } else if constexpr (kWidth == 2 && kPairs) {
    using Doubles = hn::Repartition<std::uint64_t, D>;
    using PairOctets = hn::Rebind<std::uint8_t, Doubles>;
    using Shorts = hn::Repartition<std::uint16_t, PairOctets>;
    using FourOctets = hn::Rebind<std::uint8_t, Shorts>;
    const auto pairs = hn::BitCast(Doubles(), hn::And(code, hn::Set(Words(), 3U)));
    const auto two = hn::TruncateTo(PairOctets(), hn::Or(pairs, hn::ShiftRight<30>(pairs)));
    const auto shorts = hn::BitCast(Shorts(), two);
    hn::StoreU(hn::TruncateTo(FourOctets(), hn::Or(shorts, hn::ShiftRight<4>(shorts))), FourOctets(),
               out + i / 4);
  } else if constexpr (kWidth == 1) {
    store_bits(hn::RebindMask(Floats(), hn::TestBit(code, hn::Set(Words(), 1U))), out, i);
  } else {
    store_eights(eights_of(hn::And(code, hn::Set(Words(), (1U << kWidth) - 1))), kWidth, out, i);
  }
}

// Codes of values of which one vector's words hold two: value i's in the lower half's last bits, value i + 16's in the
// upper half's.
template <unsigned kWidth, typename D = Floats>
HWY_INLINE void store_halves(VW both, std::uint8_t* HWY_RESTRICT out, std::size_t i) {
  if constexpr (kWidth == 8) {
    store_two_bytes(both, out, i);
  } else if constexpr (kWidth == 4 && kPairs) {
    using Doubles = hn::Repartition<std::uint64_t, D>;
    const auto pairs = hn::BitCast(Doubles(), both);
    const auto first = hn::Set(Doubles(), std::uint64_t{0x000f000f000f000f});
    const auto next = hn::ShiftRight<28>(pairs);
#if HWY_TARGET == HWY_AVX3_DL
    const auto bytes = hn::IfVecThenElse(first, pairs, next);  // bit by bit; wanted are bytes 0 and 2
    const auto packed = _mm512_permutexvar_epi8(_mm512_load_si512(block::kOfPairs.from), bytes.raw);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i / 2), _mm512_castsi512_si128(packed));
#else
    const auto bytes = hn::OrAnd(hn::And(pairs, first), next, hn::Not(first));
    using PairOctets = hn::Rebind<std::uint8_t, Doubles>;
    hn::StoreU(hn::TruncateTo(PairOctets(), bytes), PairOctets(), out + i / 2);
    hn::StoreU(hn::TruncateTo(PairOctets(), hn::ShiftRight<16>(bytes)), PairOctets(), out + i / 2 + 8);
#endif
  } else {
    store_codes<kWidth>(both, out, i);
    store_codes<kWidth>(hn::ShiftRight<16>(both), out, i + 16);
  }
}

// Of the values from i on and of those from i + 16 on.
template <unsigned kWidth>
HWY_INLINE void store_two(VW a, VW b, std::uint8_t* HWY_RESTRICT out, std::size_t i) {
  if constexpr (kWidth == 4 || kWidth == 8) {
    store_halves<kWidth>(hn::IfVecThenElse(hn::Set(Words(), 0xffffU), a, hn::ShiftLeft<16>(b)), out, i);
  } else {
    store_codes<kWidth>(a, out, i);
    store_codes<kWidth>(b, out, i + 16);
  }
}

// The codes from i on.
template <unsigned kWidth, typename D = Floats>
HWY_INLINE VW load_codes(const std::uint8_t* packed, std::size_t i) {
  if constexpr (kWidth == 8) {
    return hn::PromoteTo(Words(), hn::LoadU(Octets(), packed + i));
  } else if constexpr (kWidth == 4 && kPairs) {
    using Doubles = hn::Repartition<std::uint64_t, D>;
    using PairOctets = hn::Rebind<std::uint8_t, Doubles>;
    using PairWords = hn::Rebind<std::uint32_t, Doubles>;
    const auto pairs =
        hn::PromoteTo(Doubles(), hn::PromoteTo(PairWords(), hn::LoadU(PairOctets(), packed + i / 2)));
    const VW apart = hn::BitCast(Words(), hn::Or(pairs, hn::ShiftLeft<28>(pairs)));
    return hn::And(apart, hn::Set(Words(), 15U));
  } else if constexpr (kWidth == 2 && kPairs) {
    constexpr std::size_t kBytes = hn::MaxLanes(D()) / 4;
    std::uint32_t word = 0;
    std::memcpy(&word, packed + i / 4, kBytes);
    const VW own = hn::Shr(hn::Set(Words(), word), hn::Mul(hn::Iota(Words(), 0U), hn::Set(Words(), 2U)));
    return hn::And(own, hn::Set(Words(), 3U));
  } else if constexpr (kWidth == 1) {
    return hn::IfThenElseZero(hn::RebindMask(Words(), load_bits(packed, i, own_bits())),
                              hn::Set(Words(), 1U));
  } else {
    return from_eights(load_eights(packed, kWidth, i));
  }
}

}  // namespace tithe::codes::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_CODES_SIMD_INL_H_
