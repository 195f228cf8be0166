// SPDX-License-Identifier: Apache-2.0
// compress moves the lanes of a mask together; spread, its inverse, moves them apart. Included after
// hwy/foreach_target.h, once per target, which is why the guard toggles.
//
// AVX-512 has an instruction for each. AVX2 permutes lanes by a table of source lanes. Highway 1.0.3 has such a table
// too, but as a local constant of its function: GCC 12 copies all of it to the stack on every call.
#ifndef TITHE_CODEC_COMPRESS_TABLES_
#define TITHE_CODEC_COMPRESS_TABLES_

#include <array>
#include <cstdint>

namespace tithe::simd {

// For each mask of 8 lanes: the source of each lane, 4 bits per lane, lane 0 lowest.
using LaneTable = std::array<std::uint32_t, 256>;

// The lanes of the mask first, then the others, both in order.
constexpr LaneTable compressing() {
  LaneTable table{};
  for (std::uint32_t mask = 0; mask < table.size(); ++mask) {
    unsigned to = 0;
    for (const std::uint32_t wanted : {1U, 0U})
      for (std::uint32_t lane = 0; lane < 8; ++lane)
        if ((mask >> lane & 1U) == wanted) table[mask] |= lane << (4 * to++);
  }
  return table;
}

// Lane k goes to the index of the mask's k-th set bit; all other lanes are unspecified.
constexpr LaneTable spreading() {
  LaneTable table{};
  for (std::uint32_t mask = 0; mask < table.size(); ++mask) {
    std::uint32_t from = 0;
    for (unsigned to = 0; to < 8; ++to)
      if (mask >> to & 1U) table[mask] |= from++ << (4 * to);
  }
  return table;
}

alignas(64) inline constexpr LaneTable kCompressing = compressing();
alignas(64) inline constexpr LaneTable kSpreading = spreading();

}  // namespace tithe::simd
#endif

#if defined(TITHE_CODEC_COMPRESS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_COMPRESS_SIMD_INL_H_
#undef TITHE_CODEC_COMPRESS_SIMD_INL_H_
#else
#define TITHE_CODEC_COMPRESS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>

#include "base/bytes.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX2
// vpermd reads the low three bits of each lane.
HWY_INLINE __m256i lanes_from(const LaneTable& table, std::uint32_t set) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(table[set]));
  return _mm256_srlv_epi32(all, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
}
HWY_INLINE hn::Vec256<std::uint32_t> permute(hn::Vec256<std::uint32_t> v, __m256i from) {
  return hn::Vec256<std::uint32_t>{_mm256_permutevar8x32_epi32(v.raw, from)};
}
HWY_INLINE hn::Vec256<float> permute(hn::Vec256<float> v, __m256i from) {
  return hn::Vec256<float>{_mm256_permutevar8x32_ps(v.raw, from)};
}
#endif

// The mask as bits, lane 0 lowest; at most 16 lanes.
template <typename D>
HWY_INLINE std::uint32_t set_of(D d, hn::Mask<D> mask) {
#if HWY_TARGET == HWY_AVX2
  return static_cast<std::uint32_t>(
      _mm256_movemask_ps(hn::BitCast(hn::Rebind<float, D>(), hn::VecFromMask(d, mask)).raw));
#else
  std::uint8_t room[8] = {};
  hn::StoreMaskBits(d, mask, room);
  return wire::get<std::uint16_t>(room);
#endif
}

// Moves the lanes of the mask to the front; `set` is set_of(mask). The lanes after them are unspecified.
template <typename D>
HWY_INLINE hn::Vec<D> compress(D, hn::Vec<D> v, hn::Mask<D> mask, std::uint32_t set) {
  static_assert(sizeof(hn::TFromD<D>) == 4);
#if HWY_TARGET == HWY_AVX2
  static_assert(hn::MaxLanes(D()) == 8);
  return permute(v, lanes_from(kCompressing, set));
#else
  (void)set;
  return hn::Compress(v, mask);
#endif
}

// Stores the compressed vector, all of its lanes. Returns how many lanes the mask has.
template <typename D>
HWY_INLINE std::size_t compress_store(D d, hn::Vec<D> v, hn::Mask<D> mask, hn::TFromD<D>* to) {
  const std::uint32_t set = set_of(d, mask);
  hn::StoreU(compress(d, v, mask, set), d, to);
  return static_cast<std::size_t>(std::popcount(set));
}

// Moves lane k to the index of the k-th set bit of `set`; the other lanes are 0.
template <typename D>
HWY_INLINE hn::Vec<D> spread(D d, hn::Vec<D> v, std::uint64_t set) {
  static_assert(sizeof(hn::TFromD<D>) == 4);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::Vec<D>{_mm512_maskz_expand_epi32(static_cast<__mmask16>(set), v.raw)};
#else
  const auto own = hn::Shl(hn::Set(d, 1U), hn::Iota(d, 0U));
  const auto all = hn::Set(d, static_cast<std::uint32_t>(set));
#if HWY_TARGET == HWY_AVX2
  const auto moved = permute(v, lanes_from(kSpreading, static_cast<std::uint32_t>(set)));
#else
  const auto rank = hn::PopulationCount(hn::And(all, hn::Sub(own, hn::Set(d, 1U))));
  // The rank of a lane is at most its own index, so every index is valid.
  const auto moved = hn::TableLookupLanes(v, hn::IndicesFromVec(d, rank));
#endif
  return hn::IfThenElseZero(hn::TestBit(all, own), moved);
#endif
}

}  // namespace tithe::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_COMPRESS_SIMD_INL_H_
