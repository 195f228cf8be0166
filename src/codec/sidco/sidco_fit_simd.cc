// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "codec/shared/common/kernels.h"
#include "codec/sidco/sidco_fit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sidco/sidco_fit_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/compress_simd_inl.h"
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::sidco::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, 16>;
using Halves = hn::Rebind<float, Doubles>;
using Longs = hn::RebindToUnsigned<Doubles>;
using VD = hn::Vec<Doubles>;
constexpr std::size_t kVectors = kFoldLanes / hn::MaxLanes(Doubles());

// Running sums in the order of base/fold.h.
class Sum {
 public:
  HWY_INLINE Sum() {
    for (VD& v : lane_) v = hn::Zero(Doubles());
  }
  HWY_INLINE void add(std::size_t k, VD v) { lane_[k] = hn::Add(lane_[k], v); }
  HWY_INLINE Fold<double> fold() const {
    Fold<double> f;
    for (std::size_t k = 0; k < kVectors; ++k)
      hn::StoreU(lane_[k], Doubles(), &f.lane[k * hn::Lanes(Doubles())]);
    return f;
  }

 private:
  VD lane_[kVectors];
};

HWY_INLINE VD magnitude_at(const float* v, std::size_t k) {
  return hn::PromoteTo(Doubles(), hn::Abs(hn::LoadU(Halves(), v + k * hn::Lanes(Doubles()))));
}

// How many of n values are in whole rows of the fold's lanes.
HWY_INLINE std::size_t rows(std::size_t n) { return whole(n) / kFoldLanes * kFoldLanes; }

Excess excess(std::span<const float> values, double t) {
  Sum sum, squares;
  std::size_t count = 0, i = 0;
  const VD from = hn::Set(Doubles(), t);
  for (; i < rows(values.size()); i += kFoldLanes)
    for (std::size_t k = 0; k < kVectors; ++k) {
      const VD over = hn::Sub(magnitude_at(&values[i], k), from);
      const auto beyond = hn::Ge(over, hn::Zero(Doubles()));
      count += hn::CountTrue(Doubles(), beyond);
      sum.add(k, hn::IfThenElseZero(beyond, over));
      squares.add(k, hn::IfThenElseZero(beyond, hn::Mul(over, over)));
    }
  Excess e{.count = static_cast<double>(count), .sum = sum.fold(), .squares = squares.fold()};
  for (; i < values.size(); ++i) e.add(i, values[i], t);
  return e;
}

Logs logs(std::span<const float> values) {
  Logs of;
  Sum sum, exponents;
  std::size_t count = 0, i = 0;
  const VD most = hn::Set(Doubles(), double{std::numeric_limits<float>::max()});
  const auto mantissa = hn::Set(Longs(), Logs::kMantissa), one = hn::Set(Longs(), Logs::kOne);
  // A whole number below 2^52 in these low bits is its double plus 2^52; `bias` is that and the exponents' own.
  const auto whole_number = hn::Set(Longs(), 0x4330000000000000ULL);
  const VD bias = hn::Set(Doubles(), 0x1p52 + 1023);
  for (std::size_t first = 0; first < rows(values.size()); first += Logs::kAtOnce) {
    VD product[kVectors];
    for (VD& p : product) p = hn::Set(Doubles(), 1);
    for (; i < std::min(rows(values.size()), first + Logs::kAtOnce); i += kFoldLanes)
      for (std::size_t k = 0; k < kVectors; ++k) {
        const VD m = magnitude_at(&values[i], k);
        const auto counts = hn::And(hn::Gt(m, hn::Zero(Doubles())), hn::Le(m, most));
        const auto bits = hn::BitCast(Longs(), m);
        const VD exponent =
            hn::Sub(hn::BitCast(Doubles(), hn::Or(hn::ShiftRight<52>(bits), whole_number)), bias);
        const VD factor = hn::BitCast(Doubles(), hn::Or(hn::And(bits, mantissa), one));
        count += hn::CountTrue(Doubles(), counts);
        sum.add(k, hn::IfThenElseZero(counts, m));
        exponents.add(k, hn::IfThenElseZero(counts, exponent));
        product[k] = hn::Mul(product[k], hn::IfThenElse(counts, factor, hn::Set(Doubles(), 1)));
      }
    for (std::size_t k = 0; k < kVectors; ++k)
      hn::StoreU(product[k], Doubles(), &of.product[k * hn::Lanes(Doubles())]);
    if (i == first + Logs::kAtOnce) of.take_logs();
  }
  of.count = static_cast<double>(count);
  of.sum = sum.fold();
  of.exponents = exponents.fold();
  for (; i < values.size(); ++i) {
    of.add(i, values[i]);
    if ((i + 1) % Logs::kAtOnce == 0) of.take_logs();
  }
  of.take_logs();
  return of;
}

std::size_t keep(std::span<const float> values, float t, float* HWY_RESTRICT kept) {
  const VF from = hn::Set(Floats(), t);
  std::size_t count = 0, i = 0;
  for (; i < whole(values.size()); i += lanes()) {
    const VF m = hn::Abs(load(&values[i]));
    count += compress_store(Floats(), m, hn::Ge(m, from), kept + count);
  }
  return count + kReference.keep(values.subspan(i), t, kept + count);
}

}  // namespace
}  // namespace tithe::sidco::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::sidco {
TITHE_KERNELS(const Kernels kSimd, excess, logs, keep);
}  // namespace tithe::sidco
#endif
