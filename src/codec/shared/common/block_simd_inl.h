// SPDX-License-Identifier: Apache-2.0
// SIMD versions of draw_high (base/rng.h), and bits and bytes from vectors.
#if defined(TITHE_CODEC_BLOCK_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_BLOCK_SIMD_INL_H_
#undef TITHE_CODEC_BLOCK_SIMD_INL_H_
#else
#define TITHE_CODEC_BLOCK_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstring>

#include "base/bytes.h"
#include "codec/shared/common/block.h"
#include "codec/shared/common/simd_inl.h"

#ifndef TITHE_CODEC_BLOCK_SIMD_TABLES_
#define TITHE_CODEC_BLOCK_SIMD_TABLES_
namespace tithe::block {

// A byte shuffle of 512 bits: byte 0 of each word, then byte 2 of each word. `size`: bytes of a word, 4 or 8.
struct alignas(64) ByteShuffle {
  std::uint8_t from[64];
};
constexpr ByteShuffle first_and_third(unsigned size) {
  ByteShuffle table{};
  const unsigned words = 64 / size;
  for (unsigned k = 0; k < 2 * words; ++k)
    table.from[k] = static_cast<std::uint8_t>(k % words * size + k / words * 2);
  return table;
}
inline constexpr ByteShuffle kOfWords = first_and_third(4);
inline constexpr ByteShuffle kOfPairs = first_and_third(8);

}  // namespace tithe::block
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::block::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;

using Mask = hn::Mask<Floats>;
using Ints = hn::RebindToSigned<Floats>;

// The sum of a vector's lanes, added in the order of Fold::total.
template <typename D>
HWY_INLINE float total([[maybe_unused]] D d, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(d) > 1) {
    const hn::Half<D> half;
    return total(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}

// The parts of draw_high (base/rng.h) after its first multiplication, and from it on.
HWY_INLINE VW multiplied_once(VW x, VW high) {
  return hn::Mul(hn::Xor3(x, hn::ShiftRight<15>(x), high), hn::Set(Words(), kHighSecond));
}
HWY_INLINE VW stirred(VW x, VW high) {
  return multiplied_once(hn::Mul(x, hn::Set(Words(), kHighFirst)), high);
}
HWY_INLINE VW mixed(VW x, VW high) { return stirred(hn::Xor(x, hn::ShiftRight<16>(x)), high); }

// draw_high for vectors.
class HighDraws {
 public:
  HWY_INLINE explicit HighDraws(std::uint64_t key)
      : key_(static_cast<std::uint32_t>(key)),
        low_(hn::Xor(hn::Iota(Words(), 0U), hn::Set(Words(), key_))),
        high_(hn::Set(Words(), static_cast<std::uint32_t>(key >> 32))) {}
  // The draws of a vector of values from `index` on; index is a multiple of lanes().
  HWY_INLINE VW at(std::size_t index) const { return mixed(from(index), high_); }

  // at() for indices that agree with `first` in bits 16 and above: cheaper. The first multiplication is of the sum of
  // two numbers that share no bits, one of which is the lane's: so its product is made beforehand.
  class Run {
   public:
    HWY_INLINE Run(const HighDraws& draws, std::size_t first)
        : high_(draws.high_),
          key_(draws.key_ ^ (static_cast<std::uint32_t>(first) ^ draws.key_) >> 16),
          lanes_(of_lanes(key_)),
          next_lanes_(hn::Add(lanes_, hn::Set(Words(), (key_ & 16U) != 0 ? 0U - kApart : kApart))) {}
    HWY_INLINE VW at(std::size_t index) const { return with(lanes_, index); }
    // at(index + 16); bit 4 of index is 0.
    HWY_INLINE VW at_next(std::size_t index) const { return with(next_lanes_, index); }

   private:
    static constexpr std::uint32_t kApart = 16 * kHighFirst;
    static HWY_INLINE std::uint32_t lane_bits() { return static_cast<std::uint32_t>(lanes()) - 1; }
    static HWY_INLINE VW of_lanes(std::uint32_t key) {
      const VW lane = hn::Xor(hn::Iota(Words(), 0U), hn::Set(Words(), key & lane_bits()));
      return hn::Mul(lane, hn::Set(Words(), kHighFirst));
    }
    HWY_INLINE VW with(VW of_lanes, std::size_t index) const {
      const std::uint32_t rest = static_cast<std::uint32_t>(index) ^ (key_ & ~lane_bits());
      return multiplied_once(hn::Add(of_lanes, hn::Set(Words(), rest * kHighFirst)), high_);
    }

    VW high_;
    std::uint32_t key_;
    VW lanes_, next_lanes_;
  };
  static constexpr std::size_t kRun = std::size_t{1} << 16;

 private:
  HWY_INLINE VW from(std::size_t index) const {
    return hn::Xor(hn::Set(Words(), static_cast<std::uint32_t>(index)), low_);
  }

  std::uint32_t key_;
  VW low_;  // with the lane's number
  VW high_;
};

// How many of n values lie in whole groups of 32; 0 where vectors are emulated.
HWY_INLINE std::size_t whole_pairs(std::size_t n) { return whole(n) / 32 * 32; }

using Octets = hn::Rebind<std::uint8_t, Floats>;

// The low byte of each word. (TruncateTo of Highway 1.0.3 returns wrong bytes on AVX3_DL.)
template <typename D = Octets>
HWY_INLINE hn::Vec<D> last_bytes(VW v) {
#if HWY_TARGET == HWY_AVX3_DL
  return hn::Vec<D>{_mm512_cvtepi32_epi8(v.raw)};
#else
  return hn::TruncateTo(D(), v);
#endif
}

// Writes bytes stored two per word: byte i in byte 0 of the word, byte i + 16 in byte 2.
HWY_INLINE void store_two_bytes(VW both, std::uint8_t* HWY_RESTRICT out, std::size_t i) {
#if HWY_TARGET == HWY_AVX3_DL
  const auto bytes = _mm512_permutexvar_epi8(_mm512_load_si512(kOfWords.from), both.raw);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_castsi512_si256(bytes));
#else
  hn::StoreU(last_bytes(both), Octets(), out + i);
  hn::StoreU(last_bytes(hn::ShiftRight<16>(both)), Octets(), out + i + 16);
#endif
}

// Writes a mask of 16, 8 or 4 lanes from bit i of p on; i is a multiple of lanes().
HWY_INLINE void store_bits(Mask mask, std::uint8_t* p, std::size_t i) {
  std::uint8_t room[8] = {};
  hn::StoreMaskBits(Floats(), mask, room);
  if (lanes() >= 8)
    std::memcpy(p + i / 8, room, lanes() / 8);
  else
    p[i / 8] = static_cast<std::uint8_t>((i % 8 ? p[i / 8] : 0U) | static_cast<unsigned>(room[0]) << (i % 8));
}

// Lane k holds 1 << k.
HWY_INLINE VW own_bits() { return hn::Shl(hn::Set(Words(), 1U), hn::Iota(Words(), 0U)); }

// The inverse of store_bits: reads bits i .. i + lanes() - 1 of p.
HWY_INLINE Mask load_bits(const std::uint8_t* p, std::size_t i, VW own) {
  const std::uint32_t word =
      lanes() > 8 ? wire::get<std::uint16_t>(p + i / 8) : std::uint32_t{p[i / 8]} >> (i % 8);
  return hn::RebindMask(Floats(), hn::TestBit(hn::Set(Words(), word), own));
}

}  // namespace tithe::block::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_BLOCK_SIMD_INL_H_
