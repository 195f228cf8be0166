// SPDX-License-Identifier: Apache-2.0
// The vector twins of codec/block.h and of base/rng.h's draw_high.
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

class Draws {
 public:
  HWY_INLINE explicit Draws(std::uint64_t key)
      : low_(hn::Xor(hn::Iota(Words(), 0U), hn::Set(Words(), static_cast<std::uint32_t>(key)))),
        high_(hn::Set(Words(), static_cast<std::uint32_t>(key >> 32))) {}
  // For a vector of values from `index` on, a multiple of lanes().
  HWY_INLINE VW at(std::size_t index) const {
    VW x = hn::Xor(hn::Set(Words(), static_cast<std::uint32_t>(index)), low_);
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(Words(), kHighFirst));
    x = hn::Xor3(x, hn::ShiftRight<15>(x), high_);
    return hn::Mul(x, hn::Set(Words(), kHighSecond));
  }

 private:
  VW low_;  // with the lane's number
  VW high_;
};

// To the nearest whole number: in a float from 2^23 on, its last bit is worth 1.
class CountedSteps {
 public:
  HWY_INLINE explicit CountedSteps(const Steps& steps)
      : lift_(hn::Set(Floats(), steps.lift)), per_(hn::Set(Floats(), steps.per)) {}
  HWY_INLINE VW count(VF magnitude) const {
    const VF exact = hn::Mul(hn::Mul(magnitude, lift_), per_);
    const VF large = hn::Set(Floats(), 0x1p23F);
    return hn::Sub(bits(hn::Add(exact, large)), bits(large));
  }

 private:
  VF lift_;
  VF per_;
};

// Both below 2^31.
HWY_INLINE Mask less(VW a, VW b) {
  return hn::RebindMask(Floats(), hn::Lt(hn::BitCast(Ints(), a), hn::BitCast(Ints(), b)));
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
