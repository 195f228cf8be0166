// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "base/bytes.h"
#include "base/fold.h"
#include "codec/blocks/blocks.h"
#include "codec/shared/common/block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/blocks/blocks_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::blocks::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, 16>;
using VD = hn::Vec<Doubles>;
constexpr std::size_t kVectors = kFoldLanes / hn::MaxLanes(Floats());
constexpr std::size_t kSums = kFoldLanes / hn::MaxLanes(Doubles());

// The sums of squares have the order of base/fold.h: double lane l of `sum` adds the values with index l modulo
// kFoldLanes.
template <bool kResidual, bool kResidualOut, bool kSquares>
Stats measure_block(const EncodeInput& in) {
  const std::size_t rows = whole(in.n) / kFoldLanes * kFoldLanes;
  VW most = hn::Zero(Words());
  VD sum[kSums];
  for (VD& s : sum) s = hn::Zero(Doubles());
  [[maybe_unused]] const auto add = [](VD& to, VD v) { to = hn::Add(to, hn::Mul(v, v)); };
  for (std::size_t i = 0; i < rows; i += kFoldLanes)
    for (std::size_t k = 0; k < kVectors; ++k) {
      const VF v = load_value<kResidual>(in, i + k * lanes());
      most = hn::Max(most, magnitude(v));
      if (kResidualOut) hn::StoreU(v, Floats(), in.residual_out + i + k * lanes());
#if HWY_TARGET != HWY_SCALAR  // which has no half vectors
      if (kSquares) {
        add(sum[2 * k], hn::PromoteTo(Doubles(), hn::LowerHalf(v)));
        add(sum[2 * k + 1], hn::PromoteTo(Doubles(), hn::UpperHalf(hn::Half<Floats>(), v)));
      }
#endif
    }
  Stats stats{.largest = hn::GetLane(hn::MaxOfLanes(Words(), most))};
  Fold<double> squares;
  for (std::size_t k = 0; kSquares && k < kSums; ++k)
    hn::StoreU(sum[k], Doubles(), &squares.lane[k * hn::Lanes(Doubles())]);
  for (std::size_t i = rows; i < in.n; ++i) {
    const float v = in.value(i);
    stats.largest = std::max(stats.largest, std::bit_cast<std::uint32_t>(v) & 0x7fffffffU);
    if (kSquares) squares.add(i, double{v} * double{v});
    in.store_residual(i, 0.0F);
  }
  if (kSquares) stats.squares = squares.total();
  return stats;
}

template <bool kResidual, bool kResidualOut>
void measure_as(const EncodeInput& in, bool squares, Stats* stats) {
  for (std::size_t b = 0; b < count(in.n); ++b) {
    const EncodeInput block = block::part(in, b * kBlock, length(in.n, b));
    stats[b] = squares ? measure_block<kResidual, kResidualOut, true>(block)
                       : measure_block<kResidual, kResidualOut, false>(block);
  }
}

void measure_all(const EncodeInput& in, bool squares, Stats* stats) {
  by_residuals(in, [&](auto residual, auto residual_out)
                       HWY_ATTR { measure_as<residual, residual_out>(in, squares, stats); });
}

void merge(std::span<const std::uint8_t* const> sent, const float* base, float divide, std::span<float> out) {
  const VF by = hn::Set(Floats(), divide);
  const bool divides = divide != 1.0F;
  std::size_t i = 0;
  for (; i < whole(out.size()); i += lanes()) {
    VF sum = base ? load(base + i) : hn::Zero(Floats());
    for (const std::uint8_t* p : sent) sum = hn::Add(sum, load(p + 4 * i));
    hn::StoreU(divides ? hn::Div(sum, by) : sum, Floats(), out.data() + i);
  }
  for (; i < out.size(); ++i) {
    float sum = base ? base[i] : 0.0F;
    for (const std::uint8_t* p : sent) sum += wire::get<float>(p + 4 * i);
    out[i] = divides ? sum / divide : sum;
  }
}

}  // namespace
}  // namespace tithe::blocks::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::blocks {

HWY_EXPORT(measure_all);
HWY_EXPORT(merge);

void measure(const EncodeInput& in, bool squares, Stats* stats) {
  HWY_DYNAMIC_DISPATCH(measure_all)(in, squares, stats);
}

void merge_sent(std::span<const std::uint8_t* const> sent, const float* base, float divide,
                std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(merge)(sent, base, divide, out);
}

}  // namespace tithe::blocks
#endif
