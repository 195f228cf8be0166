// SPDX-License-Identifier: Apache-2.0
// Collect compares 64 values at a time, which gives a word of bits, and then lists the set bits almost without
// branches. KthLargest does not sort: a lower bound, from the maxima of groups, excludes most values, and histograms
// narrow the others to one bin, in which nth_element finds the result. Invariant: every kernel has the result of its
// scalar definition, also for equal magnitudes.
#include "codec/shared/sparse/select_simd.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "base/bytes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/sparse/select_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "codec/shared/common/compress_simd_inl.h"
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::select::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = tithe::simd::HWY_NAMESPACE;

constexpr std::size_t kBlock = 1024;  // values per round of collect: 4 KiB of each stream stay in L1
constexpr std::size_t kWord = 64;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

HWY_INLINE VI Magnitude(VF v) { return hn::And(hn::BitCast(DI(), v), hn::Set(DI(), 0x7fffffff)); }

// The index of the lowest set bit; 63 if no bit is set. No branch: it would be mispredicted half of the time.
HWY_INLINE std::uint32_t LowestBit(std::uint64_t word) {
  return static_cast<std::uint32_t>(std::countr_zero(word | std::uint64_t{1} << 63));
}

// One bit per value for the 64 values from i on; residual_out becomes the taken values.
template <bool kResidual, bool kResidualOut>
HWY_INLINE std::uint64_t TakeWord(const EncodeInput in, std::size_t i, VI below, VI& peak) {
  const DF d;
  const std::size_t lanes = hn::Lanes(d);
  std::uint64_t word = 0;
  for (std::size_t j = 0; j < kWord; j += lanes) {
    VF v = hn::LoadU(d, in.grad + i + j);
    if constexpr (kResidual) v = hn::Add(v, hn::LoadU(d, in.residual + i + j));
    if constexpr (kResidualOut) hn::StoreU(v, d, in.residual_out + i + j);
    const VI m = Magnitude(v);
    peak = hn::Max(peak, m);
    word |= std::uint64_t{simd::set_of(DI(), hn::Gt(m, below))} << j;
  }
  return word;
}

template <bool kResidual, bool kResidualOut>
Found CollectAs(const EncodeInput in, std::size_t start, std::size_t length, std::uint32_t threshold,
                std::uint32_t* HWY_RESTRICT index, float* HWY_RESTRICT value) {
  const VI below = hn::Set(DI(), static_cast<std::int32_t>(threshold) - 1);
  VI peaks = hn::Zero(DI());
  std::uint32_t peak = 0;
  std::size_t count = 0;
  const std::size_t end = start + length;
  std::uint64_t words[kBlock / kWord];
  for (std::size_t block = start; block < end; block += kBlock) {
    const std::size_t stop = std::min(block + kBlock, end);
    std::size_t filled = 0;
    std::size_t i = block;
    for (; i + kWord <= stop; i += kWord) {
      simd::prefetch_ahead<kResidual, kWord>(in, i);
      words[filled++] = TakeWord<kResidual, kResidualOut>(in, i, below, peaks);
    }
    if (i < stop) {
      std::uint64_t word = 0;
      for (std::size_t j = 0; i + j < stop; ++j) {
        const float v = kResidual ? in.grad[i + j] + in.residual[i + j] : in.grad[i + j];
        if constexpr (kResidualOut) in.residual_out[i + j] = v;
        const std::uint32_t m = std::bit_cast<std::uint32_t>(v) & 0x7fffffffU;
        peak = std::max(peak, m);
        word |= std::uint64_t{m >= threshold} << j;
      }
      words[filled++] = word;
    }
    // Always writes two indices per word, even if the word has fewer: a branch on their number would be mispredicted.
    const std::size_t first = count;
    for (std::size_t w = 0; w < filled; ++w) {
      std::uint64_t word = words[w];
      const auto base = static_cast<std::uint32_t>(block + kWord * w);
      std::uint32_t* to = index + count;
      count += static_cast<std::size_t>(std::popcount(word));
      to[0] = base + LowestBit(word);
      word &= word - 1;
      to[1] = base + LowestBit(word);
      word &= word - 1;
      for (to += 2; word != 0; word &= word - 1) *to++ = base + LowestBit(word);
    }
    for (std::size_t j = first; j < count; ++j) {
      const std::size_t at = index[j];
      if constexpr (kResidualOut) {
        value[j] = in.residual_out[at];
        in.residual_out[at] = 0.0F;
      } else {
        value[j] = kResidual ? in.grad[at] + in.residual[at] : in.grad[at];
      }
    }
  }
  const auto widest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(DI(), peaks)));
  return {.count = count, .peak = std::max(peak, widest)};
}

Found Collect(const EncodeInput& in, std::size_t start, std::size_t length, std::uint32_t threshold,
              std::uint32_t* index, float* value) {
  return simd::by_residuals(in, [&](auto residual, auto residual_out) HWY_ATTR {
    return CollectAs<residual, residual_out>(in, start, length, threshold, index, value);
  });
}

void TakeSample(const Sample& sample, std::uint64_t key, const EncodeInput in, float* HWY_RESTRICT seen) {
  const hn::CappedTag<float, kLine> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t lines = sample.whole() ? in.n / kLine : sample.lines;
  // Sampled lines are far apart: several are prefetched before one is used.
  constexpr std::size_t kLines = 16;
  std::size_t start[kLines];
  const auto ask = [&](std::size_t j) {
    const std::size_t at = start[j % kLines] = sample.whole() ? kLine * j : sample.line(key, j);
    hwy::Prefetch(in.grad + at);
    if (in.residual) hwy::Prefetch(in.residual + at);
  };
  for (std::size_t j = 0; j < std::min(kLines, lines); ++j) ask(j);
  for (std::size_t j = 0; j < lines; ++j) {
    const std::size_t at = start[j % kLines];
    for (std::size_t i = 0; i < kLine; i += lanes) {
      VF v = hn::LoadU(d, in.grad + at + i);
      if (in.residual) v = hn::Add(v, hn::LoadU(d, in.residual + at + i));
      hn::StoreU(v, d, seen + kLine * j + i);
    }
    if (j + kLines < lines) ask(j + kLines);
  }
  if (sample.whole())
    for (std::size_t i = kLine * lines; i < in.n; ++i) seen[i] = in.value(i);
}

// A histogram window: 2^11 bins of 2^shift magnitudes each, from low on; larger magnitudes fall into the last bin.
struct Window {
  static constexpr std::uint32_t kLast = 2047;
  std::uint32_t low;
  int shift;
};

// Moves the magnitudes in the bin of the k-th largest to `work` and returns their number. k becomes the rank of the
// k-th largest among them, and the window becomes the bin. source may be work. No magnitude may be below window.low.
std::size_t Narrow(const void* source, std::size_t n, std::size_t& k, Window& window, std::uint32_t* work) {
  const auto* from = static_cast<const std::uint8_t*>(source);
  const auto magnitude = [&](std::size_t i) {
    std::uint32_t bits;
    std::memcpy(&bits, from + 4 * i, sizeof bits);
    return bits & 0x7fffffffU;
  };
  const auto bin_of = [&](std::uint32_t m) {
    return std::min((m - window.low) >> window.shift, Window::kLast);
  };
  constexpr std::size_t kCopies = 4;  // with one, equal neighbours would wait for each other's store
  std::uint32_t bins[kCopies][Window::kLast + 1] = {};
  std::size_t i = 0;
  for (; i + kCopies <= n; i += kCopies)
    for (std::size_t c = 0; c < kCopies; ++c) ++bins[c][bin_of(magnitude(i + c))];
  for (; i < n; ++i) ++bins[0][bin_of(magnitude(i))];
  std::uint32_t bin = Window::kLast;
  const auto in_bin = [&] { return std::size_t{bins[0][bin]} + bins[1][bin] + bins[2][bin] + bins[3][bin]; };
  for (; in_bin() < k; --bin) k -= in_bin();

  const DU d;
  const std::size_t lanes = hn::Lanes(d);
  const auto wanted = hn::Set(d, bin);
  const auto last = hn::Set(d, Window::kLast);
  const auto low = hn::Set(d, window.low);
  const auto sign_off = hn::Set(d, 0x7fffffffU);
  std::size_t count = 0;
  for (i = 0; i + lanes <= n; i += lanes) {
    const auto m = hn::And(hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(from) + i), sign_off);
    const auto hit = hn::Eq(hn::Min(hn::ShiftRightSame(hn::Sub(m, low), window.shift), last), wanted);
    count += simd::compress_store(d, m, hit, work + count);
  }
  for (; i < n; ++i) {
    const std::uint32_t m = magnitude(i);
    work[count] = m;
    count += bin_of(m) == bin;
  }
  window = {.low = window.low + (bin << window.shift), .shift = std::max(0, window.shift - 11)};
  return count;
}

std::uint32_t KthByBins(const void* source, std::size_t n, std::size_t k, std::uint32_t floor,
                        std::uint32_t* work) {
  // From 0 on a bin is an exponent and 3 mantissa bits. From a floor on bins are finer and reach up to 256 times the
  // floor.
  Window window{.low = floor, .shift = floor > 0 ? 15 : 20};
  std::size_t count = Narrow(source, n, k, window, work);
  constexpr std::size_t kWorthBins = 256;
  if (count > kWorthBins) count = Narrow(work, count, k, window, work);
  std::nth_element(work, work + (k - 1), work + count, std::greater<>{});
  return work[k - 1];
}

// If k is a small part of n, few values need bins: the k-th largest of the maxima of disjoint groups is a lower bound
// of the k-th largest of all, and few values reach it.
std::uint32_t KthLargest(const float* value, std::size_t n, std::size_t k, std::uint32_t floor,
                         std::uint32_t* work) {
  constexpr std::size_t kMaxGroups = 4096;
  const std::size_t groups = std::min(kMaxGroups, 16 * k);  // a multiple of every vector length
  if (floor > 0 || groups < 2 * k || n < 4 * groups) return KthByBins(value, n, k, floor, work);
  const DF d;
  const DU du;
  const std::size_t lanes = hn::Lanes(d);
  const auto sign_off = hn::Set(du, 0x7fffffffU);
  const auto load = [&](std::size_t i) {
    return hn::And(hn::BitCast(du, hn::LoadU(d, value + i)), sign_off);
  };
  HWY_ALIGN std::uint32_t most[kMaxGroups + kSlack] = {};
  for (std::size_t row = 0; row + groups <= n; row += groups)
    for (std::size_t g = 0; g < groups; g += lanes)
      hn::StoreU(hn::Max(hn::LoadU(du, most + g), load(row + g)), du, most + g);
  floor = KthByBins(most, groups, k, 0, most);
  const auto below = hn::Set(DI(), static_cast<std::int32_t>(floor) - 1);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto m = load(i);
    const auto hit = hn::RebindMask(du, hn::Gt(hn::BitCast(DI(), m), below));
    if (!hn::AllFalse(du, hit)) count += simd::compress_store(du, m, hit, work + count);
  }
  for (; i < n; ++i) {
    work[count] = std::bit_cast<std::uint32_t>(value[i]) & 0x7fffffffU;
    count += work[count] >= floor;
  }
  return KthByBins(work, count, k, floor, work);
}

std::size_t CountAbove(const float* value, std::size_t n, std::uint32_t threshold) {
  const DF d;
  const std::size_t lanes = hn::Lanes(d);
  const VI limit = hn::Set(DI(), static_cast<std::int32_t>(threshold));
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    count += hn::CountTrue(DI(), hn::Gt(Magnitude(hn::LoadU(d, value + i)), limit));
  for (; i < n; ++i) count += (std::bit_cast<std::uint32_t>(value[i]) & 0x7fffffffU) > threshold;
  return count;
}

// Whole vectors separate kept and dropped elements. The scalar loop takes the rest, and a vector in which the ties end.
void Cut(std::uint32_t threshold, std::size_t ties, std::size_t k, std::size_t n, const std::uint32_t* index,
         const float* value, std::uint8_t* to_index, std::uint8_t* to_value, float* residual_out) {
  const DF d;
  const DU du;
  const std::size_t lanes = hn::Lanes(d);
  const VI limit = hn::Set(DI(), static_cast<std::int32_t>(threshold));
  std::size_t kept = 0;
  std::size_t i = 0;
  constexpr std::size_t kChunk = 1024;
  std::uint32_t lost_index[kChunk + kSlack];
  float lost_value[kChunk + kSlack];
  while (i < n) {
    const std::size_t stop = std::min(i + kChunk, n);
    std::size_t lost = 0;
    // Whole vectors, while they end within the k elements.
    for (; i + lanes <= stop && kept + lanes <= k; i += lanes) {
      const auto at = hn::LoadU(du, index + i);
      const VF v = hn::LoadU(d, value + i);
      const VI m = Magnitude(v);
      const auto equal = hn::Eq(m, limit);
      auto keep = hn::Gt(m, limit);
      if (HWY_UNLIKELY(!hn::AllFalse(DI(), equal))) {
        const std::size_t more = hn::CountTrue(DI(), equal);
        if (more <= ties) {
          keep = hn::Or(keep, equal);
          ties -= more;
        } else if (ties > 0) {
          break;  // some of these are among the first `ties`: the scalar loop below decides
        }
      }
      const auto keep_u = hn::RebindMask(du, keep);
      const auto keep_f = hn::RebindMask(d, keep);
      simd::compress_store(du, at, keep_u, reinterpret_cast<std::uint32_t*>(to_index) + kept);
      const std::size_t hits = simd::compress_store(d, v, keep_f, reinterpret_cast<float*>(to_value) + kept);
      simd::compress_store(du, at, hn::Not(keep_u), lost_index + lost);
      simd::compress_store(d, v, hn::Not(keep_f), lost_value + lost);
      kept += hits;
      lost += lanes - hits;
    }
    const std::size_t scalar_stop = std::min(i + lanes, stop);
    for (; i < scalar_stop; ++i) {
      const std::uint32_t m = std::bit_cast<std::uint32_t>(value[i]) & 0x7fffffffU;
      const bool tie = m == threshold && ties > 0;
      ties -= tie;
      if (m > threshold || tie) {
        wire::put(to_index + 4 * kept, index[i]);
        wire::put(to_value + 4 * kept++, value[i]);
      } else {
        lost_index[lost] = index[i];
        lost_value[lost++] = value[i];
      }
    }
    if (residual_out != nullptr)
      for (std::size_t j = 0; j < lost; ++j) residual_out[lost_index[j]] = lost_value[j];
  }
}

}  // namespace tithe::select::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::select {

HWY_EXPORT(Collect);
HWY_EXPORT(TakeSample);
HWY_EXPORT(KthLargest);
HWY_EXPORT(CountAbove);
HWY_EXPORT(Cut);

Found collect(const EncodeInput& in, std::size_t start, std::size_t length, std::uint32_t threshold,
              std::uint32_t* index, float* value) {
  return HWY_DYNAMIC_DISPATCH(Collect)(in, start, length, threshold, index, value);
}

void take_sample(const Sample& sample, std::uint64_t key, const EncodeInput& in, float* seen) {
  HWY_DYNAMIC_DISPATCH(TakeSample)(sample, key, in, seen);
}

std::uint32_t kth_largest(const float* value, std::size_t n, std::size_t k, std::uint32_t floor,
                          std::uint32_t* work) {
  return HWY_DYNAMIC_DISPATCH(KthLargest)(value, n, k, floor, work);
}

std::size_t count_above(const float* value, std::size_t n, std::uint32_t threshold) {
  return HWY_DYNAMIC_DISPATCH(CountAbove)(value, n, threshold);
}

void cut(std::uint32_t threshold, std::size_t ties, std::size_t k, std::size_t n, const std::uint32_t* index,
         const float* value, std::uint8_t* to_index, std::uint8_t* to_value, float* residual_out) {
  HWY_DYNAMIC_DISPATCH(Cut)(threshold, ties, k, n, index, value, to_index, to_value, residual_out);
}

}  // namespace tithe::select
#endif
