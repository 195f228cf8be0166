// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which values a sparsifier sends: the threshold that a sample suggests, and the references that pick and
// send. Zeros are never picked: a tensor with fewer other values than asked for sends fewer.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "codec/sparse/sparse.h"
#include "tithe/codec.h"

namespace tithe::select {

// Values are sampled in whole lines, since memory is read in lines.
inline constexpr std::size_t kLine = 16;

// The sample of one encode: the values are cut into `lines` strata of nearly equal size, and one line is
// drawn from each; lines == 0: all values are looked at. A function of its arguments and the key only.
struct Sample {
  std::size_t n = 0;
  std::size_t lines = 0;

  bool whole() const { return lines == 0; }
  std::size_t count() const { return whole() ? n : lines * kLine; }
  // First value of line j; increases with j.
  std::size_t line(std::uint64_t key, std::size_t j) const {
    const std::size_t total = n / kLine;
    const std::size_t low = j * total / lines;  // n < 2^32: no overflow
    const std::size_t high = (j + 1) * total / lines;
    const std::uint64_t draw = draw32(key, static_cast<std::uint32_t>(j));
    return kLine * (low + (draw * (high - low) >> 32));
  }
};

// `share` of n values, but never fewer than give kFewHits values above the threshold (the estimate would be noise) nor
// more than give many_hits (it would cost time and buy nothing). Near half of n: all of them.
// With h hits the number of values that reach the threshold strays by a factor of about 1 +- 1 / sqrt(h).
inline constexpr double kFewHits = 32;
inline constexpr double kManyHits = 128;
Sample plan_sample(std::size_t n, double ratio, double share, double many_hits = kManyHits);

// Which of the sampled magnitudes, counted from the largest, is the threshold for `ratio`.
std::size_t threshold_rank(const Sample& sample, double ratio);

// The sampled values, in order.
std::vector<float> sample_ref(const Sample& sample, std::uint64_t key, const Carry& in);

// How many values may be sent where `ratio` of n is wanted: k = count_of(ratio, n), and as the threshold is only an
// estimate, up to `most` = floor(cap * k), at least k and at most n. Beyond that exactly k are.
struct Limits {
  std::size_t k;
  std::size_t most;
};
Limits limits_of(double ratio, double cap, std::size_t n);

// The reference: the rank-th largest sampled magnitude, but at least that of the smallest value that is not
// 0.
std::uint32_t threshold_ref(const Sample& sample, std::uint64_t key, double ratio, const Carry& in);

// The values as take() gives them, before anything is left.
std::vector<float> taken(const Carry& in);

// The (at most) k picked values of largest magnitude, lower index first among equals; in increasing order.
void keep_largest(std::size_t k, std::span<const float> values, std::vector<std::uint32_t>& picked);

// Writes the payload of the picked values, leaves +0 there and all other values whole.
Encoded send_ref(const sparse::Form& form, const Carry& in, std::span<const float> values,
                 std::span<const std::uint32_t> picked, Bytes out);

// The reference of select_fast.h's gather: sends the values of magnitude >= threshold, or where these are more than
// limits.most the limits.k largest of them.
Encoded send_from(std::uint32_t threshold, const Limits& limits, const sparse::Form& form, const Carry& in,
                  Bytes out);

}  // namespace tithe::select
