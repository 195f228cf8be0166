// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "codec/thc/thc.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/thc/thc_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/block_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::thc::HWY_NAMESPACE {
namespace {
using namespace block::HWY_NAMESPACE;

using VI = hn::Vec<Ints>;
template <typename T>
using Tag = hn::Rebind<T, Floats>;

// ---- The transform: the reference's sums and differences in the reference's order

#if HWY_TARGET != HWY_SCALAR
// Each lane's partner in a stage inside a vector.
template <std::size_t kHalf, typename V>
HWY_INLINE V partner(V v) {
  if constexpr (kHalf == 1) return hn::Shuffle2301(v);
  if constexpr (kHalf == 2) return hn::Shuffle1032(v);
  if constexpr (kHalf == 4) return hn::SwapAdjacentBlocks(v);
  if constexpr (kHalf == 8) return hn::ConcatLowerUpper(hn::DFromV<V>(), v, v);
}

#endif

template <std::size_t kHalf, typename V>
HWY_INLINE V stages_within(V v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kHalf < hn::MaxLanes(Floats())) {
    const auto second =
        hn::TestBit(hn::Iota(Words(), 0U), hn::Set(Words(), static_cast<std::uint32_t>(kHalf)));
    const V other = partner<kHalf>(v);
    const V next =
        hn::IfThenElse(hn::RebindMask(hn::DFromV<V>(), second), hn::Sub(other, v), hn::Add(v, other));
    return stages_within<2 * kHalf>(next);
  }
#endif
  return v;
}

// Stages half, 2 half, .. of `kStages` in one pass over memory.
template <std::size_t kStages, typename T>
HWY_INLINE void stages_across(T* HWY_RESTRICT x, std::size_t half) {
  constexpr std::size_t kVectors = std::size_t{1} << kStages;
  const Tag<T> d;
  for (std::size_t first = 0; first < kBlock; first += kVectors * half)
    for (std::size_t i = first; i < first + half; i += lanes()) {
      hn::Vec<Tag<T>> v[kVectors];
      for (std::size_t k = 0; k < kVectors; ++k) v[k] = hn::Load(d, x + i + k * half);
      for (std::size_t apart = 1; apart < kVectors; apart *= 2)
        for (std::size_t k = 0; k < kVectors; ++k) {
          if ((k & apart) != 0) continue;
          const auto a = v[k], b = v[k + apart];
          v[k] = hn::Add(a, b);
          v[k + apart] = hn::Sub(a, b);
        }
      for (std::size_t k = 0; k < kVectors; ++k) hn::Store(v[k], d, x + i + k * half);
    }
}

// The stages between vectors.
template <typename T>
HWY_INLINE void transform_across(T* HWY_RESTRICT x) {
  std::size_t half = lanes();
  for (; half * 8 <= kBlock; half *= 8) stages_across<3>(x, half);
  if (half * 4 <= kBlock) {
    stages_across<2>(x, half);
    half *= 4;
  }
  if (half * 2 <= kBlock) stages_across<1>(x, half);
}

// ---- The kernels

// The sign bits of the vector of values from index i of the block on.
HWY_INLINE VW sign_bits(std::uint32_t signs, std::size_t i) {
  const VW up = hn::Sub(hn::Set(Words(), 31U), hn::Iota(Words(), 0U));
  return hn::And(hn::Shl(hn::Set(Words(), signs >> i % 32), up), hn::Set(Words(), 0x80000000U));
}

template <bool kResidual>
double squares_of(const Carry& block) {
  using Doubles = hn::Repartition<double, Floats>;
  using Singles = hn::Rebind<float, Doubles>;
  constexpr std::size_t kStep = hn::MaxLanes(Doubles());
  constexpr std::size_t kVectors = kFoldLanes / kStep;
  hn::Vec<Doubles> sum[kVectors];
  for (auto& s : sum) s = hn::Zero(Doubles());
  const std::size_t vectors = whole(block.n) / kFoldLanes * kFoldLanes;
  for (std::size_t i = 0; i < vectors; i += kFoldLanes)
    for (std::size_t k = 0; k < kVectors; ++k) {
      auto v = hn::LoadU(Singles(), block.grad + i + k * kStep);
      if (kResidual) v = hn::Add(v, hn::LoadU(Singles(), block.residual + i + k * kStep));
      const auto wide = hn::PromoteTo(Doubles(), v);
      sum[k] = hn::Add(sum[k], hn::Mul(wide, wide));
    }
  Fold<double> fold;
  for (std::size_t k = 0; k < kVectors; ++k) hn::StoreU(sum[k], Doubles(), fold.lane.data() + k * kStep);
  for (std::size_t i = vectors; i < block.n; ++i) {
    const double v = block.take(i);
    fold.add(i, v * v);
  }
  return fold.total();
}
double squares(const Carry& block) {
  return block.residual ? squares_of<true>(block) : squares_of<false>(block);
}

template <bool kResidual>
bool levels_of(const Grid& grid, std::uint64_t own, const Carry& block, Levels& out) {
  HWY_ALIGN float x[kBlock];
  Peak peak;
  const VF inverse = hn::Set(Floats(), grid.inverse);
  for (std::size_t word = 0; word < kBlock / 32; ++word) {
    const std::uint32_t signs = grid.signs(word);
    for (std::size_t i = 32 * word; i < 32 * word + 32; i += lanes()) {
      const VF v = take<kResidual>(block, i);
      peak.see(magnitude(v));
      const VF turned = from_bits(hn::Xor(bits(hn::Mul(v, inverse)), sign_bits(signs, i)));
      hn::Store(stages_within<1>(turned), Floats(), x + i);
    }
  }
  transform_across(x);
  const HighDraws draws(own);
  const VF per = hn::Set(Floats(), grid.per);
  const VF middle = hn::Set(Floats(), grid.middle);
  const VF top = hn::Set(Floats(), static_cast<float>(grid.top));
  const VF unit = hn::Set(Floats(), 0x1p-24F);
  for (std::size_t i = 0; i < kBlock; i += lanes()) {
    const VF at = hn::Add(hn::Mul(hn::Load(Floats(), x + i), per), middle);
    const VF held =
        hn::IfThenElseZero(hn::Gt(at, hn::Zero(Floats())), hn::IfThenElse(hn::Lt(at, top), at, top));
    const VI low = hn::ConvertTo(Ints(), held);
    const VI draw = hn::BitCast(Ints(), hn::ShiftRight<8>(draws.at(grid.first + i)));
    const Mask up =
        hn::Lt(hn::Mul(hn::ConvertTo(Floats(), draw), unit), hn::Sub(held, hn::ConvertTo(Floats(), low)));
    const VI one = hn::IfThenElseZero(hn::RebindMask(Ints(), up), hn::Set(Ints(), 1));
    hn::StoreU(hn::BitCast(Words(), hn::Add(low, one)), Words(), out.data() + i);
  }
  return peak.finite();
}

bool levels(const Grid& grid, bool table, std::uint64_t own, const Carry& block, Levels& out) {
  if (table || block.n != kBlock || whole(kBlock) == 0)
    return kReference.levels(grid, table, own, block, out);
  return block.residual ? levels_of<true>(grid, own, block, out) : levels_of<false>(grid, own, block, out);
}

void values(const Grid& grid, unsigned added, const Levels& sums, Values& out) {
  if (grid.width != kBlock || whole(kBlock) == 0) return kReference.values(grid, added, sums, out);
  HWY_ALIGN std::int32_t x[kBlock];
  const VI middle = hn::Set(Ints(), static_cast<std::int32_t>(added * grid.top));
  for (std::size_t i = 0; i < kBlock; i += lanes()) {
    const VI sum = hn::BitCast(Ints(), hn::LoadU(Words(), sums.data() + i));
    hn::Store(stages_within<1>(hn::Sub(hn::Add(sum, sum), middle)), Ints(), x + i);
  }
  transform_across(x);
  const VF unit = hn::Set(Floats(), grid.unit);
  for (std::size_t word = 0; word < kBlock / 32; ++word) {
    const std::uint32_t signs = grid.signs(word);
    for (std::size_t i = 32 * word; i < 32 * word + 32; i += lanes()) {
      const VF v = hn::Mul(hn::ConvertTo(Floats(), hn::Load(Ints(), x + i)), unit);
      hn::StoreU(from_bits(hn::Xor(bits(v), sign_bits(signs, i))), Floats(), out.data() + i);
    }
  }
}

}  // namespace
}  // namespace tithe::thc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::thc {
TITHE_EXPORT(squares)
TITHE_EXPORT(levels)
TITHE_EXPORT(values)
const Kernels kSimd = {TITHE_KERNEL(squares), TITHE_KERNEL(levels), TITHE_KERNEL(values),
                       .fields = int_fields::kSimd};
}  // namespace tithe::thc
#endif
