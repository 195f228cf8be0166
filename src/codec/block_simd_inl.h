// SPDX-License-Identifier: Apache-2.0
// The vector twins of codec/block.h and of base/rng.h's draw_high and draw_half.
#if defined(TITHE_CODEC_BLOCK_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_BLOCK_SIMD_INL_H_
#undef TITHE_CODEC_BLOCK_SIMD_INL_H_
#else
#define TITHE_CODEC_BLOCK_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstring>

#include "base/bytes.h"
#include "codec/block.h"
#include "codec/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::block::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;

using Mask = hn::Mask<Floats>;
using Ints = hn::RebindToSigned<Floats>;

template <bool kResidual, bool kSum>
HWY_INLINE Look look(const Carry& in) {
  constexpr std::size_t kVectors = kFoldLanes / hn::MaxLanes(Floats());
  const std::size_t vectors = whole(in.n) / kFoldLanes * kFoldLanes;
  VW most[kVectors];
  VF sum[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k) {
    most[k] = hn::Zero(Words());
    sum[k] = hn::Zero(Floats());
  }
  for (std::size_t i = 0; i < vectors; i += kFoldLanes)
    for (std::size_t k = 0; k < kVectors; ++k) {
      const VW mag = magnitude(take<kResidual>(in, i + k * lanes()));
      most[k] = hn::Max(most[k], mag);
      if (kSum) sum[k] = hn::Add(sum[k], from_bits(mag));
    }
  Look found;
  Fold<float> fold;
  for (std::size_t k = 0; k < kVectors; ++k) {
    found.peak = std::max(found.peak, hn::GetLane(hn::MaxOfLanes(Words(), most[k])));
    if (kSum) hn::StoreU(sum[k], Floats(), fold.lane.data() + k * lanes());
  }
  for (std::size_t i = vectors; i < in.n; ++i) {
    const float v = in.take(i);
    found.peak = std::max(found.peak, magnitude_bits(v));
    if (kSum) fold.add(i, std::fabs(v));
  }
  if (kSum) found.sum = fold.total();
  return found;
}

// Where memory is asked for while a block is computed: 1536 values ahead of the one in work, in range. One block ahead
// comes too late for half of it; looking at the next block in the same loop costs half the pace from memory, though not
// in cache: two streams at once. With a residual to read and write, asking ahead makes it slower.
constexpr std::size_t kAhead = 1536;
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
