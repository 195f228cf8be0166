// SPDX-License-Identifier: Apache-2.0
// SIMD versions of codec/shared/common/bit_packing.h. A vector holds one code per word, in the low kWidth bits.
#if defined(TITHE_BIT_PACKING_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_BIT_PACKING_SIMD_INL_H_
#undef TITHE_BIT_PACKING_SIMD_INL_H_
#else
#define TITHE_BIT_PACKING_SIMD_INL_H_
#endif

#include "base/bytes.h"
#include "codec/shared/common/bit_packing.h"
#include "codec/shared/common/block_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::bit_packing::HWY_NAMESPACE {
using namespace block::HWY_NAMESPACE;

// Two 4-bit codes make a byte, which takes two lanes at least.
constexpr bool kPairs = hn::MaxLanes(Floats()) > 1;

// The largest unsigned type of at most kBytes bytes.
template <std::size_t kBytes>
using Part =
    std::conditional_t<kBytes == 8, std::uint64_t,
                       std::conditional_t<(kBytes >= 4), std::uint32_t,
                                          std::conditional_t<(kBytes >= 2), std::uint16_t, std::uint8_t>>>;

// Loads and stores the low kBytes bytes of a word by two accesses that may overlap. (Pieces joined in memory would
// cause a store-forwarding stall.)
template <std::size_t kBytes>
HWY_INLINE std::uint64_t load_word(const std::uint8_t* p) {
  using Piece = Part<kBytes>;
  constexpr std::size_t kSecond = kBytes - sizeof(Piece);
  return wire::get<Piece>(p) | std::uint64_t{wire::get<Piece>(p + kSecond)} << (8 * kSecond);
}
template <std::size_t kBytes>
HWY_INLINE void store_word(std::uint64_t word, std::uint8_t* p) {
  using Piece = Part<kBytes>;
  constexpr std::size_t kSecond = kBytes - sizeof(Piece);
  wire::put(p, static_cast<Piece>(word));
  wire::put(p + kSecond, static_cast<Piece>(word >> (8 * kSecond)));
}

// A vector of codes of any width, from code i on; i is a multiple of lanes(). Eight codes start and end at a byte
// boundary: this does what pack8 and unpack8 do, for all groups of eight in a vector.
#if HWY_TARGET == HWY_SCALAR  // one lane; never called, as whole() is 0
template <unsigned kWidth>
HWY_INLINE void store_eights(VW code, std::uint8_t* out, std::size_t i) {
  put(out, i, kWidth, hn::GetLane(code));
}
template <unsigned kWidth>
HWY_INLINE VW load_eights(const std::uint8_t* packed, std::size_t i) {
  return hn::Set(Words(), get(packed, i, kWidth));
}
#else
constexpr std::size_t kEights = hn::MaxLanes(Floats()) / 8;

template <unsigned kWidth, typename D = Octets>
HWY_INLINE void store_eights(VW code, std::uint8_t* HWY_RESTRICT out, std::size_t i) {
  constexpr std::uint64_t kOne = 0x00ff00ff00ff00ffU, kTwo = 0x0000ffff0000ffffU, kFour = 0xffffffffU;
  const hn::Vec<D> octets = last_bytes<D>(code);
  std::uint8_t* to = out + i * kWidth / 8;
  if constexpr (kEights > 0) {
    const hn::Repartition<std::uint64_t, D> d;
    auto v = hn::BitCast(d, octets);
    v = hn::OrAnd(hn::And(v, hn::Set(d, kOne)), hn::ShiftRight<8 - kWidth>(v), hn::Set(d, kOne << kWidth));
    v = hn::OrAnd(hn::And(v, hn::Set(d, kTwo)), hn::ShiftRight<16 - 2 * kWidth>(v),
                  hn::Set(d, kTwo << 2 * kWidth));
    v = hn::OrAnd(hn::And(v, hn::Set(d, kFour)), hn::ShiftRight<32 - 4 * kWidth>(v),
                  hn::Set(d, kFour << 4 * kWidth));
    for (std::size_t k = 0; k < kEights; ++k) store_word<kWidth>(hn::ExtractLane(v, k), to + k * kWidth);
  } else {  // a vector of four codes, which may start in the middle of a byte
    const hn::Repartition<std::uint32_t, D> word;
    const std::size_t shift = i * kWidth % 8;
    const std::uint64_t four = pack8(hn::GetLane(hn::BitCast(word, octets)), kWidth);
    store_word<(4 * kWidth + 7) / 8>(four << shift | (shift != 0 ? *to : 0U), to);
  }
}

template <unsigned kWidth, typename D = Octets>
HWY_INLINE VW load_eights(const std::uint8_t* packed, std::size_t i) {
  constexpr std::uint64_t kOne = (1U << kWidth) - 1, kTwo = (1U << 2 * kWidth) - 1,
                          kFour = (std::uint64_t{1} << 4 * kWidth) - 1;
  constexpr std::uint64_t kOnes = kOne * 0x0001000100010001U, kTwos = kTwo * 0x100000001U;
  const std::uint8_t* from = packed + i * kWidth / 8;
  if constexpr (kEights > 0) {
    const hn::Repartition<std::uint64_t, D> d;
    auto v = hn::Set(d, load_word<kWidth>(from));
    if constexpr (kEights == 2) v = hn::InsertLane(v, 1, load_word<kWidth>(from + kWidth));
    v = hn::OrAnd(hn::And(v, hn::Set(d, kFour)), hn::ShiftLeft<32 - 4 * kWidth>(v), hn::Set(d, kFour << 32));
    v = hn::OrAnd(hn::And(v, hn::Set(d, kTwos)), hn::ShiftLeft<16 - 2 * kWidth>(v), hn::Set(d, kTwos << 16));
    v = hn::OrAnd(hn::And(v, hn::Set(d, kOnes)), hn::ShiftLeft<8 - kWidth>(v), hn::Set(d, kOnes << 8));
    return hn::PromoteTo(Words(), hn::BitCast(D(), v));
  } else {
    const hn::Repartition<std::uint32_t, D> word;
    const std::uint64_t four = unpack8(load_word<(4 * kWidth + 7) / 8>(from) >> (i * kWidth % 8), kWidth);
    return hn::PromoteTo(Words(), hn::BitCast(D(), hn::Set(word, static_cast<std::uint32_t>(four))));
  }
}
#endif

// Writes a vector of codes, from code i on.
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
    store_eights<kWidth>(hn::And(code, hn::Set(Words(), (1U << kWidth) - 1)), out, i);
  }
}

// Words with the lower half of `lower` and the upper half of `upper`.
HWY_INLINE VW in_halves(VW lower, VW upper) {
  return hn::IfVecThenElse(hn::Set(Words(), 0xffffU), lower, upper);
}
// Shifts bit kFrom of each word to bit 16.
template <int kFrom>
HWY_INLINE VW from_bit_16(VW v) {
  if constexpr (kFrom < 16)
    return hn::ShiftLeft<16 - kFrom>(v);
  else
    return hn::ShiftRight<kFrom - 16>(v);
}

// Writes codes stored two per word: code i in the low bits of the lower half, code i + 16 in those of the upper half.
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
    const auto bytes = hn::IfVecThenElse(first, pairs, next);  // bit by bit; the result is in bytes 0 and 2
    const auto packed = _mm512_permutexvar_epi8(_mm512_load_si512(block::kOfPairs.from), bytes.raw);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i / 2), _mm512_castsi512_si128(packed));
#else
    const auto bytes = hn::OrAnd(hn::And(pairs, first), next, hn::Not(first));
    using PairOctets = hn::Rebind<std::uint8_t, Doubles>;
    hn::StoreU(hn::TruncateTo(PairOctets(), bytes), PairOctets(), out + i / 2);
    hn::StoreU(hn::TruncateTo(PairOctets(), hn::ShiftRight<16>(bytes)), PairOctets(), out + i / 2 + 8);
#endif
#if HWY_TARGET == HWY_AVX3_DL
  } else if constexpr (kWidth == 2) {
    const auto pairs =
        hn::BitCast(hn::Repartition<std::uint64_t, D>(), hn::And(both, hn::Set(Words(), 0x00030003U)));
    const auto twos = hn::Or(pairs, hn::ShiftRight<30>(pairs));  // the result is in bytes 0 and 2
    const auto packed = _mm512_permutexvar_epi8(_mm512_load_si512(block::kOfPairs.from), twos.raw);
    const hn::Full128<std::uint16_t> shorts;
    const hn::Vec<decltype(shorts)> fours{_mm512_castsi512_si128(packed)};
    const hn::Rebind<std::uint8_t, decltype(shorts)> octets;
    hn::StoreU(hn::TruncateTo(octets, hn::Or(fours, hn::ShiftRight<4>(fours))), octets, out + i / 4);
#endif
  } else {
    store_codes<kWidth>(both, out, i);
    store_codes<kWidth>(hn::ShiftRight<16>(both), out, i + 16);
  }
}

// Reads a vector of codes, from code i on.
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
    return load_eights<kWidth>(packed, i);
  }
}

}  // namespace tithe::bit_packing::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_BIT_PACKING_SIMD_INL_H_
