// SPDX-License-Identifier: Apache-2.0
// A block is read from memory once: the first pass takes its values, adds them up and packs their signs; the second
// pass, in the L1 cache, writes residual_out. Slower on data from memory: to prefetch the next block; to run the second
// pass of one block beside the first pass of the next (faster in cache); several blocks per pass; to keep taken values
// or signs for the second pass. Stores beside loads that miss the cache are expensive.
#include <cstring>

#include "codec/onebit/onebit.h"
#include "codec/shared/common/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/onebit/onebit_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/block_simd_inl.h"
#include "codec/shared/levels/sign_bits_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::onebit::HWY_NAMESPACE {
namespace {
using namespace simd::HWY_NAMESPACE;
using block::HWY_NAMESPACE::Mask;
using block::HWY_NAMESPACE::store_bits;

// Two running sums in the order of base/fold.h, for vectors of any width.
class Sums {
 public:
  HWY_INLINE Sums() {
    for (std::size_t k = 0; k < kVectors; ++k) pos_[k] = neg_[k] = hn::Zero(Floats());
  }
  HWY_INLINE void add(std::size_t part, VF v, Mask up) {
    pos_[part] = hn::Add(pos_[part], hn::IfThenElseZero(up, v));
    neg_[part] = hn::Add(neg_[part], hn::IfThenZeroElse(up, v));
  }
  HWY_INLINE void store(Fold<float>& neg, Fold<float>& pos) const {
    for (std::size_t k = 0; k < kVectors; ++k) {
      hn::StoreU(neg_[k], Floats(), neg.lane.data() + k * lanes());
      hn::StoreU(pos_[k], Floats(), pos.lane.data() + k * lanes());
    }
  }
  static constexpr std::size_t kVectors = kFoldLanes / hn::MaxLanes(Floats());

 private:
  VF pos_[kVectors];
  VF neg_[kVectors];
};

template <bool kResidual>
bool encode_one(const Carry& in, std::uint8_t* HWY_RESTRICT out) {
  const std::size_t vectors = whole(in.n) / kFoldLanes * kFoldLanes;
  std::uint8_t* signs = out + kHead;
  Sums sums;
  std::size_t ups = 0;
  for (std::size_t i = 0; i < vectors; i += kFoldLanes)
    for (std::size_t k = 0; k < Sums::kVectors; ++k) {
      const std::size_t at = i + k * lanes();
      const VF v = take<kResidual>(in, at);
      const Mask up = hn::Ge(v, hn::Zero(Floats()));
      sums.add(k, v, up);
      ups += hn::CountTrue(Floats(), up);
      store_bits(up, signs, at);
    }
  Fold<float> fold[2];
  sums.store(fold[0], fold[1]);
  std::fill(signs + vectors / 8, signs + (in.n + 7) / 8, std::uint8_t{0});
  for (std::size_t i = vectors; i < in.n; ++i) {
    const float v = in.take(i);
    fold[up(v)].add(i, v);
    ups += up(v);
    if (up(v)) signs[i / 8] = static_cast<std::uint8_t>(signs[i / 8] | 1U << (i % 8));
  }
  const float totals[2] = {fold[0].total(), fold[1].total()};
  // If the sums are finite, so are all values. A sum that is not finite may also have overflowed.
  bool finite = is_finite(totals[0]) && is_finite(totals[1]);
  if (!finite) {
    finite = true;
    for (std::size_t i = 0; i < in.n; ++i) finite = finite && is_finite(in.take(i));
  }
  const float means[2] = {mean(totals[0], in.n - ups), mean(totals[1], ups)};
  wire::put(&out[0], means[0]);
  wire::put(&out[4], means[1]);
  if (!in.residual_out) return finite;

  const VF neg = hn::Set(Floats(), means[0]);
  const VF pos = hn::Set(Floats(), means[1]);
  for (std::size_t i = 0; i < vectors; i += kFoldLanes) {
    for (std::size_t k = 0; k < Sums::kVectors; ++k) {
      const std::size_t at = i + k * lanes();
      const VF v = take<kResidual>(in, at);
      const Mask up = hn::Ge(v, hn::Zero(Floats()));
      hn::StoreU(hn::Sub(v, hn::IfThenElse(up, pos, neg)), Floats(), in.residual_out + at);
    }
  }
  for (std::size_t i = vectors; i < in.n; ++i) in.leave(i, means[up(in.take(i))]);
  return finite;
}

bool encode(const Call&, const Carry& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const std::size_t len = std::min(kBlock, in.n - first);
    const Carry values = block::part(in, first, len);
    std::uint8_t* to = out + first / kBlock * kBlockBytes;
    finite = (in.residual ? encode_one<true>(values, to) : encode_one<false>(values, to)) && finite;
  }
  return finite;
}

struct Format {
  static constexpr std::size_t kBlock = onebit::kBlock;
  static constexpr std::size_t kHead = onebit::kHead;
  static constexpr std::size_t kBlockBytes = onebit::kBlockBytes;
  static float clear(const std::uint8_t* block) { return wire::get<float>(block); }
  static float set(const std::uint8_t* block) { return wire::get<float>(block + 4); }
};

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  if (payloads.empty()) return kReference.decode(call, payloads, how, out);
  bit_codes::HWY_NAMESPACE::decode<Format>(payloads, how, out);
}

}  // namespace
}  // namespace tithe::onebit::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::onebit {
TITHE_KERNELS(const block::Kernels kSimd, encode, decode);
}  // namespace tithe::onebit
#endif
