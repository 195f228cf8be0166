// SPDX-License-Identifier: Apache-2.0
// SIMD versions of codec/shared/common/block.h and of draw_high and draw_half (base/rng.h).
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

template <bool kResidual, bool kSum>
HWY_INLINE Stats stats_of(const Carry& in) {
  constexpr std::size_t kStep = 4 * kFoldLanes;
  constexpr std::size_t kVectors = kStep / hn::MaxLanes(Floats());
  constexpr std::size_t kSums = kFoldLanes / hn::MaxLanes(Floats());  // the order of base/fold.h
  const std::size_t vectors = whole(in.n) / kStep * kStep;
  VW most[kVectors];
  VF sum[kSums];
  for (VW& m : most) m = hn::Zero(Words());
  for (VF& s : sum) s = hn::Zero(Floats());
  for (std::size_t i = 0; i < vectors; i += kStep)
    for (std::size_t k = 0; k < kVectors; ++k) {
      const VW mag = magnitude(take<kResidual>(in, i + k * lanes()));
      most[k] = hn::Max(most[k], mag);
      if (kSum) sum[k % kSums] = hn::Add(sum[k % kSums], from_bits(mag));
    }
  Stats stats;
  for (std::size_t k = 1; k < kVectors; ++k) most[0] = hn::Max(most[0], most[k]);
  stats.peak = hn::GetLane(hn::MaxOfLanes(Words(), most[0]));
  if (kSum && vectors == in.n) {
    for (std::size_t half = kSums / 2; half > 0; half /= 2)
      for (std::size_t k = 0; k < half; ++k) sum[k] = hn::Add(sum[k], sum[k + half]);
    stats.sum = total(Floats(), sum[0]);
    return stats;
  }
  Fold<float> fold;
  for (std::size_t k = 0; kSum && k < kSums; ++k)
    hn::StoreU(sum[k], Floats(), fold.lane.data() + k * lanes());
  for (std::size_t i = vectors; i < in.n; ++i) {
    const float v = in.take(i);
    stats.peak = std::max(stats.peak, magnitude_bits(v));
    if (kSum) fold.add(i, std::fabs(v));
  }
  if (kSum) stats.sum = fold.total();
  return stats;
}

// The gradient address to prefetch while a block is encoded: kAhead is a little more than a block ahead of the current
// value, and the address stays inside the gradient. One block ahead is too late for part of it; one and a half
// overtakes the hardware prefetcher. Slower: to prefetch the residual too (a third stream), or to compute the next
// block's statistics in the loop that sends this one.
HWY_INLINE const float* ahead_of(const Carry& in, std::size_t first, std::size_t len) {
  return in.grad + (first + len + kAhead <= in.n ? first + kAhead : 0);
}

// The common part of draw_high and draw_half (base/rng.h), after and from the first multiplication on.
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

// draw_half for a vector of values from i on; i is a multiple of lanes().
class HalfDraws {
 public:
  HWY_INLINE HalfDraws(std::uint64_t key, int bits)
      : low_(hn::Iota(Words(), static_cast<std::uint32_t>(key))),
        high_(hn::Set(Words(), static_cast<std::uint32_t>(key >> 32))),
        mask_(hn::Set(Words(), (1U << bits) - 1)),
        bits_(bits) {}
  HWY_INLINE VW at(std::size_t i) const {
    const VW number = hn::Set(Words(), static_cast<std::uint32_t>((i >> 5 << 4) + (i & 15)));
    const VW x = mixed(hn::Add(low_, number), high_);
    const VW upper = hn::ShiftRightSame(x, 32 - bits_);
    return (i & 16) == 0 ? upper : hn::And(hn::Xor(x, upper), mask_);
  }

 private:
  VW low_;  // with the lane's number
  VW high_;
  VW mask_;
  int bits_;
};

// draw_half for consecutive values. Each word() holds the draws of two vectors: upper(word) for the values from i on,
// lower(word) for those from i + 16 on. Within each 32 values, i takes the offsets 0, lanes(), ... below 16.
template <int kBits>
class Draws {
 public:
  HWY_INLINE Draws(std::uint64_t key, std::size_t first)  // a multiple of 32
      : next_(hn::Iota(Words(), static_cast<std::uint32_t>(first / 2) + static_cast<std::uint32_t>(key))),
        high_(hn::Set(Words(), static_cast<std::uint32_t>(key >> 32))) {}
  HWY_INLINE VW word() {
    const VW x = next_;
    next_ = hn::Add(next_, hn::Set(Words(), static_cast<std::uint32_t>(lanes())));
    return mixed(x, high_);
  }
  static HWY_INLINE VW upper(VW word) { return hn::ShiftRight<32 - kBits>(word); }
  static HWY_INLINE VW lower(VW word) {
    return hn::And(hn::Xor(word, upper(word)), hn::Set(Words(), (1U << kBits) - 1));
  }

 private:
  VW next_;
  VW high_;
};

// How many of n values lie in whole groups of 32; 0 where vectors are emulated.
HWY_INLINE std::size_t whole_pairs(std::size_t n) { return whole(n) / 32 * 32; }

// Steps::rounded for lift == 1. The result has level + 2^(bits - 1) in the `bits` bits from bit `fraction` on; ignore
// the bits above.
class RoundedSteps {
 public:
  HWY_INLINE explicit RoundedSteps(const Steps& steps) : per_(hn::Set(Floats(), steps.per)) {}
  HWY_INLINE VW at(VF v, VW draw) const {
    return hn::Add(bits(hn::Add(hn::Mul(v, per_), hn::Set(Floats(), 0x1.8p23F))), draw);
  }

 private:
  VF per_;
};

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

// Writes bytes that stand two to a word: byte i in byte 0 of the word, byte i + 16 in byte 2.
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

// Reads what store_bits wrote: bits i .. i + lanes() - 1 of p.
HWY_INLINE Mask load_bits(const std::uint8_t* p, std::size_t i, VW own) {
  const std::uint32_t word =
      lanes() > 8 ? wire::get<std::uint16_t>(p + i / 8) : std::uint32_t{p[i / 8]} >> (i % 8);
  return hn::RebindMask(Floats(), hn::TestBit(hn::Set(Words(), word), own));
}

}  // namespace tithe::block::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_BLOCK_SIMD_INL_H_
