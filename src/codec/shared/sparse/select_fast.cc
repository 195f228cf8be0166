// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/select_fast.h"

#include <algorithm>
#include <cstring>

#include "codec/shared/sparse/sparse.h"

namespace tithe::select {

namespace {
constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Writes the k largest of the list, the lower index first among equals, to to_index and to_value; the others go back to
// residual_out. Returns the threshold: a later value that is not above it is not among the k largest.
std::uint32_t keep_largest(std::size_t k, std::size_t count, std::uint32_t floor, const Lists& lists,
                           std::uint8_t* to_index, std::uint8_t* to_value, float* residual_out) {
  const std::uint32_t threshold = kth_largest(lists.value, count, k, floor, lists.work);
  const std::size_t ties = k - count_above(lists.value, count, threshold);
  cut(threshold, ties, k, count, lists.index, lists.value, to_index, to_value, residual_out);
  return threshold;
}

}  // namespace

Layout layout(std::size_t n, std::size_t candidates, const Sample& sample) {
  const std::size_t capacity = std::min(n, candidates + std::min(n, kSegment));
  return {.indices = capacity, .capacity = capacity, .work = std::max(capacity, sample.count())};
}

Layout layout_of_all(std::size_t n, const Sample& sample) {
  return {.indices = std::min(n, kSegment), .capacity = n, .work = sample.count()};
}

std::size_t Layout::index_bytes() const { return round_up(4 * (indices + kSlack)); }

std::size_t Layout::value_bytes() const { return round_up(4 * (capacity + kSlack)); }

std::size_t Layout::bytes() const { return index_bytes() + value_bytes() + round_up(4 * (work + kSlack)); }

Lists Layout::at(Bytes scratch) const {
  return {.index = reinterpret_cast<std::uint32_t*>(scratch.data()),
          .value = reinterpret_cast<float*>(scratch.data() + index_bytes()),
          .work = reinterpret_cast<std::uint32_t*>(scratch.data() + index_bytes() + value_bytes()),
          .capacity = capacity};
}

std::uint32_t threshold_simd(const Sample& sample, std::uint64_t key, std::size_t rank, const EncodeInput& in,
                             std::uint32_t* work) {
  if (sample.n == 0) return 1;
  auto* seen = reinterpret_cast<float*>(work);
  take_sample(sample, key, in, seen);
  return std::max<std::uint32_t>(1, kth_largest(seen, sample.count(), rank, 0, work));
}

Gathered gather(const EncodeInput& in, std::uint32_t threshold, std::size_t k, std::size_t most,
                const Lists& lists, Bytes out) {
  const std::uint32_t floor = threshold;
  std::size_t count = 0;
  std::uint32_t peak = 0;
  bool full = false;
  for (std::size_t start = 0; start < in.n; start += kSegment) {
    const std::size_t length = std::min(kSegment, in.n - start);
    if (count + length > lists.capacity) {
      threshold = 1 + keep_largest(k, count, floor, lists, reinterpret_cast<std::uint8_t*>(lists.index),
                                   reinterpret_cast<std::uint8_t*>(lists.value), in.residual_out);
      count = k;
      full = true;
    }
    const Found found = collect(in, start, length, threshold, lists.index + count, lists.value + count);
    count += found.count;
    peak = std::max(peak, found.peak);
  }
  const bool finite = peak < sparse::kFirstNonFinite;
  std::uint8_t* to = out.data() + sparse::kHead;
  if (count > k && (full || count > most)) {
    keep_largest(k, count, floor, lists, to, to + 4 * k, in.residual_out);
    count = k;
  } else {
    std::memcpy(to, lists.index, 4 * count);
    std::memcpy(to + 4 * count, lists.value, 4 * count);
  }
  wire::put(out.data(), static_cast<std::uint32_t>(count));
  return {.count = count, .encoded = {.bytes = sparse::bytes(count), .finite = finite}};
}

}  // namespace tithe::select
