// SPDX-License-Identifier: Apache-2.0
// Payloads are merged block by block of the output, so that a block stays in the L1 cache while all payloads are added.
// Each payload keeps its position between blocks, because its indices ascend. Invariant: each value adds the payloads
// in their order, so its bits equal the reference's.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/sparse.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shared/sparse/sparse_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::sparse::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kBlock = 8192;  // 32 KiB of output stay in L1 while all payloads are added
constexpr std::size_t kGroup = 256;   // payloads merged in one pass
constexpr std::size_t kLine = 16;     // values in a line of the cache

void Divide(float* v, std::size_t n, float by) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  int exponent;
  const bool exact = std::frexp(by, &exponent) == 0.5F && exponent > -100 && exponent < 100;
  const auto divisor = hn::Set(d, by);
  const auto inverse = hn::Set(d, 1.0F / by);  // of a power of two: the product is the quotient, and cheap
  std::size_t i = 0;
  if (exact)
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, v + i), inverse), d, v + i);
  else
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Div(hn::LoadU(d, v + i), divisor), d, v + i);
  for (; i < n; ++i) v[i] /= by;
}

// Prefetches a line into the L2 cache: L1 has few fill buffers, and the additions need them.
void PrefetchL2(const void* line) { __builtin_prefetch(line, 0, 2); }

// The block size and the prefetches of a merge.
struct Walk {
  Walk(const Merge& merge, std::span<float> out, std::size_t payloads, std::size_t pairs)
      : from_memory(out.size() >= simd::HWY_NAMESPACE::kPastCaches) {
    const bool dense = merge.base == out.data() && from_memory && 2 * kLine * pairs >= out.size();
    step = dense ? kBlock / 2 : kBlock;
    share = dense ? (step + payloads - 1) / payloads : 0;
  }
  // Call before payload p is added to the block that ends at `end`.
  void prefetch(std::size_t p, std::size_t end, std::span<float> out) const {
    const std::size_t last = std::min(end + (p + 1) * share, out.size());
    for (std::size_t i = end + p * share; i < last; i += kLine) PrefetchL2(&out[i]);
  }

  bool from_memory;
  std::size_t step;  // values in a block
  // An in-place merge does not touch the lines between pairs. If it touches many lines of a large output, all lines of
  // the next block are prefetched in order, a share of them before each payload: all at once would stall.
  std::size_t share;
};

// Each payload continues at next[p], its first pair of the block.
void Merge256(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  std::size_t next[kGroup] = {};
  std::size_t pairs = 0;
  for (const ByteView p : payloads) pairs += Pairs(p).count();
  const bool in_place = merge.base == out.data();
  const Walk walk(merge, out, payloads.size(), pairs);
  for (std::size_t block = 0; block < out.size(); block += walk.step) {
    const std::size_t length = std::min(walk.step, out.size() - block);
    const std::size_t end = block + length;
    if (merge.base == nullptr)
      std::fill_n(&out[block], length, 0.0F);
    else if (!in_place)
      std::copy_n(merge.base + block, length, &out[block]);
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      walk.prefetch(p, end, out);
      const Pairs all(payloads[p]);
      std::size_t j = next[p];
      // Two streams per payload, read in small steps: the hardware prefetcher does not follow that many.
      if (walk.from_memory && j + 5 * kLine < all.count())
        for (const std::size_t ahead : {4 * kLine, 5 * kLine}) {
          PrefetchL2(all.indices() + 4 * (j + ahead));
          PrefetchL2(all.values() + 4 * (j + ahead));
        }
      for (; j < all.count(); ++j) {
        const std::size_t i = all.index(j);
        if (i >= end) break;
        out[i] += all.value(j);
      }
      next[p] = j;
    }
    if (merge.divide != 1.0F) Divide(&out[block], length, merge.divide);
  }
}

// Adds one payload in place: touches the indices of its pairs only, and prefetches them.
void AddPairs(const Pairs& pairs, float* out) {
  constexpr std::size_t kAhead = 32;
  const std::size_t count = pairs.count();
  std::size_t j = 0;
  for (; j + kAhead < count; ++j) {
    hwy::Prefetch(out + pairs.index(j + kAhead));
    out[pairs.index(j)] += pairs.value(j);
  }
  for (; j < count; ++j) out[pairs.index(j)] += pairs.value(j);
}

struct Batch {
  explicit Batch(ByteView payload) : from(payload) {}
  bool refill() {
    at = 0;
    size = from.read(index, value);
    return size > 0;
  }

  Unpacker from;
  std::size_t at = 0;
  std::size_t size = 0;
  std::uint32_t index[Unpacker::kMaxPairs];
  float value[Unpacker::kMaxPairs];
};

constexpr std::size_t kPackedGroup = 16;  // payloads per pass; their batches are on the stack

// Merge256 for at most kPackedGroup payloads of which some are packed: these can only be read in order.
void MergePacked(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  std::array<std::optional<Batch>, kPackedGroup> batches;
  std::size_t pairs = 0;
  for (std::size_t p = 0; p < payloads.size(); ++p) pairs += batches[p].emplace(payloads[p]).from.count();
  const Walk walk(merge, out, payloads.size(), pairs);
  for (std::size_t block = 0; block < out.size(); block += walk.step) {
    const std::size_t length = std::min(walk.step, out.size() - block);
    const std::size_t end = block + length;
    if (merge.base == nullptr)
      std::fill_n(&out[block], length, 0.0F);
    else if (merge.base != out.data())
      std::copy_n(merge.base + block, length, &out[block]);
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      walk.prefetch(p, end, out);
      Batch& b = *batches[p];
      do {
        for (; b.at < b.size && b.index[b.at] < end; ++b.at) out[b.index[b.at]] += b.value[b.at];
      } while (b.at == b.size && b.refill());
    }
    if (merge.divide != 1.0F) Divide(&out[block], length, merge.divide);
  }
}

void Decode(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  if (out.empty()) return;
  if (std::any_of(payloads.begin(), payloads.end(), is_packed))
    return codec::merge_in_groups(kPackedGroup, payloads, merge, out, MergePacked);
  if (payloads.size() == 1 && merge.base == out.data() && merge.divide == 1.0F) {
    AddPairs(Pairs(payloads[0]), out.data());
    return;
  }
  codec::merge_in_groups(kGroup, payloads, merge, out, Merge256);
}

}  // namespace tithe::sparse::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::sparse {

HWY_EXPORT(Decode);

void decode_simd(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(Decode)(payloads, merge, out);
}

}  // namespace tithe::sparse
#endif
