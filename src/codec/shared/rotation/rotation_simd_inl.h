// SPDX-License-Identifier: Apache-2.0
// SIMD version of codec/shared/rotation/rotation.h, for blocks of kBlock values: the same sums and differences, in
// the same order. A block passes through memory two or three times, with a few stages each; the first and the last
// pass include the caller's work before and behind the transform.
#if defined(TITHE_CODEC_ROTATION_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_ROTATION_SIMD_INL_H_
#undef TITHE_CODEC_ROTATION_SIMD_INL_H_
#else
#define TITHE_CODEC_ROTATION_SIMD_INL_H_
#endif

#include "codec/shared/common/block_simd_inl.h"
#include "codec/shared/rotation/rotation.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::rotation::HWY_NAMESPACE {
using namespace block::HWY_NAMESPACE;

constexpr std::size_t kBlock = 1024;
template <typename T>
using Tag = hn::Repartition<T, Floats>;
using Shorts = Tag<std::int16_t>;

// ---- Signs

// The signs of a block that starts at value `first` of its chunk.
class Signs {
 public:
  HWY_INLINE Signs(std::uint64_t key, std::size_t first) {
    const auto low = hn::Set(Words(), static_cast<std::uint32_t>(key));
    const auto high = hn::Set(Words(), static_cast<std::uint32_t>(key >> 32));
    for (std::size_t k = 0; k < kWords; k += lanes()) {
      const VW index = hn::Iota(Words(), static_cast<std::uint32_t>(first / 32 + k));
      hn::Store(mix(hn::Xor(low, mix(hn::Xor(index, high)))), Words(), word_ + k);
    }
  }
  // A vector of values from index i of the block on, with the signs applied.
  HWY_INLINE VF turned(VF v, std::size_t i) const {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    return VF{_mm512_mask_xor_ps(v.raw, mask(i), v.raw, hn::Set(Floats(), -0.0F).raw)};
#else
    return from_bits(hn::Xor(bits(v), hn::And(in_top_bits(i), hn::Set(Words(), 0x80000000U))));
#endif
  }
  // Selects plus or minus by the signs of the values from index i on.
  HWY_INLINE VF chosen(VF plus, VF minus, std::size_t i) const {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    return VF{_mm512_mask_blend_ps(mask(i), plus.raw, minus.raw)};
#else
    return hn::IfNegativeThenElse(from_bits(in_top_bits(i)), minus, plus);
#endif
  }

 private:
  static constexpr std::size_t kWords = kBlock / 32;
  static HWY_INLINE VW mix(VW x) {  // mix32 of base/rng.h
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(Words(), 0x7feb352dU));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(Words(), 0x846ca68bU));
    return hn::Xor(x, hn::ShiftRight<16>(x));
  }
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  HWY_INLINE __mmask16 mask(std::size_t i) const { return static_cast<__mmask16>(word_[i / 32] >> i % 32); }
#endif
  HWY_INLINE VW in_top_bits(std::size_t i) const {
    const VW up = hn::Sub(hn::Set(Words(), static_cast<std::uint32_t>(31 - i % 32)), hn::Iota(Words(), 0U));
    return hn::Shl(hn::Set(Words(), word_[i / 32]), up);
  }

  HWY_ALIGN std::uint32_t word_[kWords];
};

// ---- The transform

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE hn::Vec<Shorts> swap_shorts(hn::Vec<Shorts> v) {
#if HWY_TARGET == HWY_AVX2  // rotating words takes three instructions there
  HWY_ALIGN constexpr std::uint8_t kFrom[] = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
  return hn::TableLookupBytes(v, hn::BitCast(Shorts(), hn::LoadDup128(Tag<std::uint8_t>(), kFrom)));
#else
  return hn::BitCast(Shorts(), hn::RotateRight<16>(hn::BitCast(Words(), v)));
#endif
}

// The partner of each lane in a stage within a vector.
template <std::size_t kHalf, typename V>
HWY_INLINE V partner(V v) {
  if constexpr (sizeof(hn::TFromV<V>) == 2) {
    if constexpr (kHalf > 1)
      return hn::BitCast(hn::DFromV<V>(), partner<kHalf / 2>(hn::BitCast(Ints(), v)));
    else
      return swap_shorts(v);
  } else {
    if constexpr (kHalf == 1) return hn::Shuffle2301(v);
    if constexpr (kHalf == 2) return hn::Shuffle1032(v);
    if constexpr (kHalf == 4) return hn::SwapAdjacentBlocks(v);
    if constexpr (kHalf == 8) return hn::ConcatLowerUpper(hn::DFromV<V>(), v, v);
  }
}

// other + v in the first lanes of the pairs, other - v in their partners.
template <std::size_t kHalf>
HWY_INLINE VF plus_or_minus(VF v, VF other) {
  const VW second = hn::ShiftLeft<31 - hwy::FloorLog2(kHalf)>(hn::Iota(Words(), 0U));
  const VW sign = hn::And(second, hn::Set(Words(), 0x80000000U));
  const VF one = from_bits(hn::Or(sign, bits(hn::Set(Floats(), 1.0F))));
  return hn::MulAdd(v, one, other);  // the product is exact, so only the sum is rounded
}
template <std::size_t kHalf, typename V>
HWY_INLINE V plus_or_minus(V v, V other) {  // integers
  const hn::DFromV<V> d;
  using T = hn::TFromV<V>;
  const auto second = hn::TestBit(hn::Iota(d, T{0}), hn::Set(d, static_cast<T>(kHalf)));
  if constexpr (sizeof(T) == 2)
    return hn::Add(other, hn::Mul(v, hn::IfThenElse(second, hn::Set(d, T{-1}), hn::Set(d, T{1}))));
  else
    return hn::IfThenElse(second, hn::Sub(other, v), hn::Add(v, other));
}
#endif

template <std::size_t kHalf, typename V>
HWY_INLINE V stages_within(V v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kHalf < hn::MaxLanes(hn::DFromV<V>()))
    return stages_within<2 * kHalf>(plus_or_minus<kHalf>(v, partner<kHalf>(v)));
#endif
  return v;
}

// a - b. Some processors have as many units for fused products as for sums, so float sums alternate between both; the
// product by 1 is exact.
HWY_INLINE VF difference(VF a, VF b) { return hn::NegMulAdd(b, hn::Set(Floats(), 1.0F), a); }
template <typename V>
HWY_INLINE V difference(V a, V b) {
  return hn::Sub(a, b);
}

// kStages stages between vectors.
template <std::size_t kStages, typename V>
HWY_INLINE void stages_across(V* HWY_RESTRICT v) {
  constexpr std::size_t kVectors = std::size_t{1} << kStages;
  for (std::size_t apart = 1; apart < kVectors; apart *= 2)
    for (std::size_t k = 0; k < kVectors; ++k) {
      if ((k & apart) != 0) continue;
      const V a = v[k], b = v[k + apart];
      v[k] = hn::Add(a, b);
      v[k + apart] = difference(a, b);
    }
}

// The stages between vectors are done in two or three passes.
template <typename T>
struct Stages {
  static constexpr std::size_t kFirst = 3;
  static constexpr std::size_t kOthers =
      hwy::FloorLog2(kBlock) - hwy::FloorLog2(hn::MaxLanes(Tag<T>())) - kFirst;
  static constexpr std::size_t kLast = kOthers <= 3 ? kOthers : 2;
  static constexpr std::size_t kMiddle = kOthers - kLast;
};

// The first stages of a block. get(i, k): the vector of values from index i on, the k-th of a group that is processed
// together; called in increasing order of i.
template <typename T, typename Get>
HWY_INLINE void begin(T* HWY_RESTRICT x, Get get) {
  constexpr std::size_t kVectors = std::size_t{1} << Stages<T>::kFirst;
  constexpr std::size_t kStep = hn::MaxLanes(Tag<T>());
  for (std::size_t i = 0; i < kBlock; i += kVectors * kStep) {
    hn::Vec<Tag<T>> v[kVectors];
    for (std::size_t k = 0; k < kVectors; ++k) v[k] = stages_within<1>(get(i + k * kStep, k));
    stages_across<Stages<T>::kFirst>(v);
    for (std::size_t k = 0; k < kVectors; ++k) hn::Store(v[k], Tag<T>(), x + i + k * kStep);
  }
}

template <std::size_t kStages, typename T, typename Put>
HWY_INLINE void go_on(T* HWY_RESTRICT x, std::size_t half, Put put) {
  constexpr std::size_t kVectors = std::size_t{1} << kStages;
  for (std::size_t first = 0; first < kBlock; first += kVectors * half)
    for (std::size_t i = first; i < first + half; i += hn::MaxLanes(Tag<T>())) {
      hn::Vec<Tag<T>> v[kVectors];
      for (std::size_t k = 0; k < kVectors; ++k) v[k] = hn::Load(Tag<T>(), x + i + k * half);
      stages_across<kStages>(v);
      for (std::size_t k = 0; k < kVectors; ++k) put(i + k * half, v[k]);
    }
}

// The stages that remain after begin. put(i, v): takes the finished values from index i on; each i once, in no order.
template <typename T, typename Put>
HWY_INLINE void finish(T* HWY_RESTRICT x, Put put) {
  std::size_t half = hn::MaxLanes(Tag<T>()) << Stages<T>::kFirst;
  if constexpr (Stages<T>::kMiddle > 0) {
    go_on<Stages<T>::kMiddle>(x, half,
                              [x](std::size_t i, auto v) HWY_ATTR { hn::Store(v, Tag<T>(), x + i); });
    half <<= Stages<T>::kMiddle;
  }
  go_on<Stages<T>::kLast>(x, half, put);
}

}  // namespace tithe::rotation::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_ROTATION_SIMD_INL_H_
