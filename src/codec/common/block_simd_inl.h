// SPDX-License-Identifier: Apache-2.0
// The vector twins of codec/common/block.h and of base/rng.h's draw_high and draw_half.
#if defined(TITHE_CODEC_BLOCK_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_BLOCK_SIMD_INL_H_
#undef TITHE_CODEC_BLOCK_SIMD_INL_H_
#else
#define TITHE_CODEC_BLOCK_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstring>

#include "base/bytes.h"
#include "codec/common/block.h"
#include "codec/common/simd_inl.h"

#ifndef TITHE_CODEC_BLOCK_SIMD_TABLES_
#define TITHE_CODEC_BLOCK_SIMD_TABLES_
namespace tithe::block {

// Of 16 words, byte 0 of each, then byte 2 of each; for 8 longer words the same.
struct alignas(64) BytePlaces {
  std::uint8_t from[64];
};
constexpr BytePlaces first_and_third(unsigned size) {
  BytePlaces table{};
  const unsigned words = 64 / size;
  for (unsigned k = 0; k < 2 * words; ++k)
    table.from[k] = static_cast<std::uint8_t>(k % words * size + k / words * 2);
  return table;
}
inline constexpr BytePlaces kOfWords = first_and_third(4);
inline constexpr BytePlaces kOfPairs = first_and_third(8);

}  // namespace tithe::block
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::block::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;

using Mask = hn::Mask<Floats>;
using Ints = hn::RebindToSigned<Floats>;

// A vector's lanes added as Fold::total adds them.
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
HWY_INLINE Look look(const Carry& in) {
  constexpr std::size_t kStep = 4 * kFoldLanes;
  constexpr std::size_t kVectors = kStep / hn::MaxLanes(Floats());
  constexpr std::size_t kSums = kFoldLanes / hn::MaxLanes(Floats());  // sums have base/fold.h's shape
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
  Look found;
  for (std::size_t k = 1; k < kVectors; ++k) most[0] = hn::Max(most[0], most[k]);
  found.peak = hn::GetLane(hn::MaxOfLanes(Words(), most[0]));
  if (kSum && vectors == in.n) {
    for (std::size_t half = kSums / 2; half > 0; half /= 2)
      for (std::size_t k = 0; k < half; ++k) sum[k] = hn::Add(sum[k], sum[k + half]);
    found.sum = total(Floats(), sum[0]);
    return found;
  }
  Fold<float> fold;
  for (std::size_t k = 0; kSum && k < kSums; ++k)
    hn::StoreU(sum[k], Floats(), fold.lane.data() + k * lanes());
  for (std::size_t i = vectors; i < in.n; ++i) {
    const float v = in.take(i);
    found.peak = std::max(found.peak, magnitude_bits(v));
    if (kSum) fold.add(i, std::fabs(v));
  }
  if (kSum) found.sum = fold.total();
  return found;
}

// Where the gradient is asked for while a block is computed: a little more than a block ahead of the value in work, in
// range. A block ahead comes too late for some of it; half a block more runs ahead of what memory brings by itself.
// Asking for the residual as well makes it slower: it is a third stream. So does looking at the next block in the loop
// that sends this one.
constexpr std::size_t kAhead = 1152;
HWY_INLINE const float* ahead_of(const Carry& in, std::size_t first, std::size_t len) {
  return in.grad + (first + len + kAhead <= in.n ? first + kAhead : 0);
}

// What base/rng.h's short draws share, from their first multiplication on.
HWY_INLINE VW stirred(VW x, VW high) {
  x = hn::Mul(x, hn::Set(Words(), kHighFirst));
  return hn::Mul(hn::Xor3(x, hn::ShiftRight<15>(x), high), hn::Set(Words(), kHighSecond));
}
HWY_INLINE VW mixed(VW x, VW high) { return stirred(hn::Xor(x, hn::ShiftRight<16>(x)), high); }

// draw_high for vectors.
class HighDraws {
 public:
  HWY_INLINE explicit HighDraws(std::uint64_t key)
      : low_(hn::Xor(hn::Iota(Words(), 0U), hn::Set(Words(), static_cast<std::uint32_t>(key)))),
        high_(hn::Set(Words(), static_cast<std::uint32_t>(key >> 32))) {}
  // For the vector of lanes from `index` on, a multiple of lanes().
  HWY_INLINE VW at(std::size_t index) const { return mixed(from(index), high_); }

  // The same for indices whose bits from 16 on are those of `first`.
  class Run {
   public:
    HWY_INLINE Run(const HighDraws& draws, std::size_t first)
        : low_(hn::Xor(draws.low_, hn::ShiftRight<16>(draws.from(first)))), high_(draws.high_) {}
    HWY_INLINE VW at(std::size_t index) const { return stirred(from(index), high_); }
    // at(index + 16) where bit 4 of index is 0.
    HWY_INLINE VW at_next(std::size_t index) const {
      return stirred(hn::Xor(from(index), hn::Set(Words(), 16U)), high_);
    }

   private:
    HWY_INLINE VW from(std::size_t index) const {
      return hn::Xor(hn::Set(Words(), static_cast<std::uint32_t>(index)), low_);
    }

    VW low_;
    VW high_;
  };
  static constexpr std::size_t kRun = std::size_t{1} << 16;

 private:
  HWY_INLINE VW from(std::size_t index) const {
    return hn::Xor(hn::Set(Words(), static_cast<std::uint32_t>(index)), low_);
  }

  VW low_;  // with the lane's number
  VW high_;
};

// draw_half for the vector of values from i on, a multiple of lanes().
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

// draw_half for vectors, in the order of values: word() after word() gives both draws of a vector of values i and of
// the one of values i + 16, of each 32 values first those of the first lanes.
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

// How many of n values go in whole groups of 32.
HWY_INLINE std::size_t whole_pairs(std::size_t n) { return whole(n) / 32 * 32; }

// Steps::rounded where nothing is lifted. In the bits from `fraction` on: level + 2^(bits - 1) in so many bits, others
// above.
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

// The last byte of each word. (Highway 1.0.3's TruncateTo gives others where bytes go to any place.)
template <typename D = Octets>
HWY_INLINE hn::Vec<D> last_bytes(VW v) {
#if HWY_TARGET == HWY_AVX3_DL
  return hn::Vec<D>{_mm512_cvtepi32_epi8(v.raw)};
#else
  return hn::TruncateTo(D(), v);
#endif
}

// Bytes of values of which one vector's words hold two: value i's in byte 0, value i + 16's in byte 2.
HWY_INLINE void store_two_bytes(VW both, std::uint8_t* HWY_RESTRICT out, std::size_t i) {
#if HWY_TARGET == HWY_AVX3_DL
  const auto bytes = _mm512_permutexvar_epi8(_mm512_load_si512(kOfWords.from), both.raw);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_castsi512_si256(bytes));
#else
  hn::StoreU(last_bytes(both), Octets(), out + i);
  hn::StoreU(last_bytes(hn::ShiftRight<16>(both)), Octets(), out + i + 16);
#endif
}

// A vector's bits go to bit i, a multiple of lanes(); vectors have 16, 8 or 4 lanes.
HWY_INLINE void store_bits(Mask mask, std::uint8_t* p, std::size_t i) {
  std::uint8_t room[8] = {};
  hn::StoreMaskBits(Floats(), mask, room);
  if (lanes() >= 8)
    std::memcpy(p + i / 8, room, lanes() / 8);
  else
    p[i / 8] = static_cast<std::uint8_t>((i % 8 ? p[i / 8] : 0U) | static_cast<unsigned>(room[0]) << (i % 8));
}

// Bit k of lane k.
HWY_INLINE VW own_bits() { return hn::Shl(hn::Set(Words(), 1U), hn::Iota(Words(), 0U)); }

// Bits i .. i + lanes() - 1 of p, as store_bits put them.
HWY_INLINE Mask load_bits(const std::uint8_t* p, std::size_t i, VW own) {
  const std::uint32_t word =
      lanes() > 8 ? wire::get<std::uint16_t>(p + i / 8) : std::uint32_t{p[i / 8]} >> (i % 8);
  return hn::RebindMask(Floats(), hn::TestBit(hn::Set(Words(), word), own));
}

}  // namespace tithe::block::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_BLOCK_SIMD_INL_H_
