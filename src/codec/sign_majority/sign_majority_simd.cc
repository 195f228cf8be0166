// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "codec/sign_majority/sign_majority.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sign_majority/sign_majority_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/bit_packing_simd_inl.h"
#include "codec/shared/common/doubles_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::sign_majority::HWY_NAMESPACE {
namespace {
using namespace bit_packing::HWY_NAMESPACE;

template <unsigned kWidth, bool kResidual>
bool vote_as(const EncodeInput& in, std::uint8_t* HWY_RESTRICT out) {
  put_head(kWidth, out);
  std::uint8_t* HWY_RESTRICT counts = out + kHead;
  Peak peak;
  const std::size_t vectors = whole_pairs(in.n);
  for (std::size_t i = 0; i < vectors; i += lanes()) {
    const VF v = load_value<kResidual>(in, i);
    peak.see(magnitude(v));
    const auto minus = hn::RebindMask(Words(), hn::Lt(v, hn::Zero(Floats())));
    store_codes<kWidth>(hn::IfThenElseZero(minus, hn::Set(Words(), 1U)), counts, i);
  }
  std::fill(counts + vectors * kWidth / 8, counts + bit_packing::bytes_for(in.n, kWidth), std::uint8_t{0});
  return vote_from(vectors, kWidth, in, out) && peak.finite();
}

// The majorities of a vector of values from i on; i is a multiple of lanes().
template <unsigned kWidth>
class Majorities {
 public:
  HWY_INLINE explicit Majorities(ByteView votes)
      : counts_(votes.data() + kHead),
        plus_below_(hn::Set(Ints(), (votes[1] + 1) / 2)),
        minus_above_(hn::Set(Ints(), votes[1] / 2)) {}
  HWY_INLINE VF at(std::size_t i) const {
    std::size_t ties = 0;
    return at(i, ties);
  }
  HWY_INLINE VF at(std::size_t i, std::size_t& decided) const {
    const auto count = hn::BitCast(Ints(), load_codes<kWidth>(counts_, i));
    const auto plus = hn::Lt(count, plus_below_), minus = hn::Gt(count, minus_above_);
    decided += hn::CountTrue(Ints(), plus) + hn::CountTrue(Ints(), minus);
    const VF up = hn::IfThenElseZero(hn::RebindMask(Floats(), plus), hn::Set(Floats(), 1.0F));
    return hn::IfThenElse(hn::RebindMask(Floats(), minus), hn::Set(Floats(), -1.0F), up);
  }

 private:
  const std::uint8_t* counts_;
  hn::Vec<Ints> plus_below_;
  hn::Vec<Ints> minus_above_;
};

// Along::see for whole rows of a block, and their majorities.
template <unsigned kWidth, bool kResidual>
HWY_INLINE Along see_rows(const EncodeInput& in, std::size_t first, const Majorities<kWidth>& majorities,
                          std::size_t rows, float* HWY_RESTRICT kept) {
  constexpr std::size_t kVectors = kFoldLanes / hn::MaxLanes(Floats());
  Wide sum[kVectors];
  for (Wide& s : sum) s = {hn::Zero(Doubles()), hn::Zero(Doubles())};
  VF low = hn::Zero(Floats()), high = low;
  Along found;
  for (std::size_t i = 0; i < rows; i += kFoldLanes)
    for (std::size_t k = 0; k < kVectors; ++k) {
      const std::size_t at = i + k * lanes();
      const VF v = load_value<kResidual>(in, at);
      const VF m = majorities.at(first + at, found.decided);
      const VF along = hn::Mul(v, m);
      const Wide wide = widen(along);
      hn::StoreU(m, Floats(), kept + at);
      sum[k] = {hn::Add(sum[k].low, wide.low), hn::Add(sum[k].high, wide.high)};
      low = hn::Min(low, along);
      high = hn::Max(high, along);
    }
  if (rows == 0) return found;
  for (std::size_t k = 0; k < kVectors; ++k) {
    double* lane = found.sum.lane.data() + k * lanes();
    hn::StoreU(sum[k].low, Doubles(), lane);
    hn::StoreU(sum[k].high, Doubles(), lane + lanes() / 2);
    // A sum of so few floats in binary64 does not overflow, so it is finite only if all values are.
    const auto finite = hn::And(hn::IsFinite(sum[k].low), hn::IsFinite(sum[k].high));
    found.finite = found.finite && hn::AllTrue(Doubles(), finite);
  }
  found.low = hn::GetLane(hn::MinOfLanes(Floats(), low));
  found.high = hn::GetLane(hn::MaxOfLanes(Floats(), high));
  return found;
}

// Per block: one pass reads the majorities (into `kept`) and sums v M and M M, then the residual v - scale M is
// written.
template <unsigned kWidth, bool kResidual>
bool send_scales_as(const Call& call, const EncodeInput& in, std::uint8_t* out) {
  const Majorities<kWidth> majorities(call.context);
  alignas(64) float kept[kBlock];
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput values = block::part(in, first, std::min(kBlock, in.n - first));
    const std::size_t rows = whole(values.n) / kFoldLanes * kFoldLanes;
    Along along = see_rows<kWidth, kResidual>(values, first, majorities, rows, kept);
    for (std::size_t i = rows; i < values.n; ++i) {
      kept[i] = majority(call.context, first + i);
      along.see(i, values.value(i), kept[i]);
    }
    finite = finite && along.finite;
    const float scale = along.scale(fixed_scale(call));
    wire::put(out + first / kBlock * 4, scale);
    if (!in.residual_out) continue;
    const VF scales = hn::Set(Floats(), scale);
    for (std::size_t i = 0; i < rows; i += lanes())
      hn::StoreU(hn::Sub(load_value<kResidual>(values, i), hn::Mul(scales, load(kept + i))), Floats(),
                 values.residual_out + i);
    for (std::size_t i = rows; i < values.n; ++i) values.store_residual(i, scale * kept[i]);
  }
  return finite;
}

// Calls use with the number of bits of a count as a constant.
template <typename Use>
HWY_INLINE auto by_bits(const Call& call, const Use& use) {
  return by_width<1, 2, 3, 4, 5, 6, 7, 8>(bits_of(call.settings), use);
}

bool vote(const Call& call, const EncodeInput& in, std::uint8_t* out) {
  return by_bits(call, [&](auto bits) HWY_ATTR {
    return in.residual ? vote_as<bits, true>(in, out) : vote_as<bits, false>(in, out);
  });
}

bool send_scales(const Call& call, const EncodeInput& in, std::uint8_t* out) {
  return by_bits(call, [&](auto bits) HWY_ATTR {
    return in.residual ? send_scales_as<bits, true>(call, in, out)
                       : send_scales_as<bits, false>(call, in, out);
  });
}

template <unsigned kWidth>
std::size_t decode_as(ByteView votes, std::span<const ByteView> payloads, const Merge& how,
                      std::span<float> out) {
  const Majorities<kWidth> majorities(votes);
  return merge(payloads, how, out, [&](const std::uint8_t* p, std::size_t i) HWY_ATTR {
    return hn::Mul(hn::Set(Floats(), wire::get<float>(p + i / kBlock * 4)), majorities.at(i));
  });
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const ByteView votes = call.context;
  const std::size_t done =
      by_bits(call, [&](auto bits) HWY_ATTR { return decode_as<bits>(votes, payloads, how, out); });
  decode_from(done, votes, payloads, how, out);
}

}  // namespace
}  // namespace tithe::sign_majority::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::sign_majority {
TITHE_KERNELS(const Kernels kSimd, vote, send_scales, decode);
}  // namespace tithe::sign_majority
#endif
