// SPDX-License-Identifier: Apache-2.0
#include "base/fold.h"
#include "codec/shared/common/kernels.h"
#include "codec/thc/thc.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/thc/thc_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/rotation/rotation_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::thc::HWY_NAMESPACE {
namespace {
using namespace rotation::HWY_NAMESPACE;

using VI = hn::Vec<Ints>;

// The sum of squares in double, in the order of base/fold.h.
template <bool kResidual>
double squares_of(const EncodeInput& block) {
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
    const double v = block.value(i);
    fold.add(i, v * v);
  }
  return fold.total();
}
double squares(const EncodeInput& block) {
  return block.residual ? squares_of<true>(block) : squares_of<false>(block);
}

// levels() of thc.cc for a block of kBlock values: signs and scaling in the transform's first pass, rounding in its
// last.
template <bool kResidual>
bool levels_of(const Grid& grid, std::uint64_t own, const EncodeInput& block, Levels& out) {
  HWY_ALIGN float x[kBlock];
  Peak peak;
  const Signs signs(grid.key, grid.first);
  const VF inverse = hn::Set(Floats(), grid.inverse);
  begin(x, [&](std::size_t i, std::size_t) HWY_ATTR {
    const VF v = load_value<kResidual>(block, i);
    peak.see(magnitude(v));
    return signs.turned(hn::Mul(v, inverse), i);
  });
  const HighDraws draws(own);
  const VF per = hn::Set(Floats(), grid.per);
  const VF middle = hn::Set(Floats(), grid.middle);
  const VF top = hn::Set(Floats(), static_cast<float>(grid.top));
  const VF unit = hn::Set(Floats(), 0x1p-24F);
  finish(x, [&](std::size_t i, VF v) HWY_ATTR {
    const VF at = hn::Add(hn::Mul(v, per), middle);
    const VF held =
        hn::IfThenElseZero(hn::Gt(at, hn::Zero(Floats())), hn::IfThenElse(hn::Lt(at, top), at, top));
    const VI low = hn::ConvertTo(Ints(), held);
    const VI draw = hn::BitCast(Ints(), hn::ShiftRight<8>(draws.at(grid.first + i)));
    const Mask up =
        hn::Lt(hn::Mul(hn::ConvertTo(Floats(), draw), unit), hn::Sub(held, hn::ConvertTo(Floats(), low)));
    const VI one = hn::IfThenElseZero(hn::RebindMask(Ints(), up), hn::Set(Ints(), 1));
    hn::StoreU(hn::BitCast(Words(), hn::Add(low, one)), Words(), out.data() + i);
  });
  return peak.finite();
}

bool levels(const Grid& grid, bool table, std::uint64_t own, const EncodeInput& block, Levels& out) {
  if (table || block.n != kBlock || whole(kBlock) == 0)
    return kReference.levels(grid, table, own, block, out);
  return block.residual ? levels_of<true>(grid, own, block, out) : levels_of<false>(grid, own, block, out);
}

void values(const Grid& grid, unsigned added, const Levels& sums, Values& out) {
  if (grid.width != kBlock || whole(kBlock) == 0) return kReference.values(grid, added, sums, out);
  HWY_ALIGN std::int32_t x[kBlock];
  const VI middle = hn::Set(Ints(), static_cast<std::int32_t>(added * grid.top));
  begin(x, [&](std::size_t i, std::size_t) HWY_ATTR {
    const VI sum = hn::BitCast(Ints(), hn::LoadU(Words(), sums.data() + i));
    return hn::Sub(hn::Add(sum, sum), middle);
  });
  const Signs signs(grid.key, grid.first);
  const VF unit = hn::Set(Floats(), grid.unit);
  finish(x, [&](std::size_t i, VI v) HWY_ATTR {
    hn::StoreU(signs.turned(hn::Mul(hn::ConvertTo(Floats(), v), unit), i), Floats(), out.data() + i);
  });
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
