// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sparsifier's choice of values: the threshold estimated from a sample, and the reference implementations of
// selection and sending. Zeros are never selected: a tensor with fewer than k nonzero values sends fewer than k.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "codec/shared/sparse/sparse.h"
#include "tithe/seam/codec.h"

namespace tithe::select {

// Values are sampled in whole cache lines.
inline constexpr std::size_t kLine = 16;

// The sample of one encode: the n values are cut into `lines` strata of nearly equal size, and one line is drawn from
// each. lines == 0: the sample is all values. Depends on the arguments and the key only.
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

// A sample of about share * n values. A hit is a sampled value above the threshold: the sample is large enough for
// kFewHits (below that the estimate is noise) and no larger than many_hits need (more costs time and gains nothing).
// A sample near half of n becomes all n values.
// With h hits, the number of values that reach the threshold varies by a factor of about 1 +- 1 / sqrt(h).
inline constexpr double kFewHits = 32;
inline constexpr double kManyHits = 128;
Sample plan_sample(std::size_t n, double ratio, double share, double many_hits = kManyHits);

// The rank, counted from the largest, of the sampled magnitude that is the threshold for `ratio`.
std::size_t threshold_rank(const Sample& sample, double ratio);

// How many of n values are sent for `ratio`: k = count_of(ratio, n) is the aim. As the threshold is an estimate, up to
// most = floor(cap * k) values are allowed (at least k, at most n). If more reach the threshold, exactly k are sent.
struct Limits {
  std::size_t k;
  std::size_t most;
};
Limits limits_of(double ratio, double cap, std::size_t n);

// The threshold_rank-th largest sampled magnitude, but at least that of the smallest float above 0; as its bits.
std::uint32_t threshold_ref(const Sample& sample, std::uint64_t key, double ratio, const EncodeInput& in);
// The same in memory for sample.count() magnitudes.
std::uint32_t threshold_ref(const Sample& sample, std::uint64_t key, double ratio, const EncodeInput& in,
                            std::uint32_t* seen);

// All values as value() returns them; call it before store_residual().
std::vector<float> taken(const EncodeInput& in);

// Moves the k indices of largest magnitude (the lower index first among equals) to the front of `picked`, in increasing
// order: how many these are.
std::size_t keep_largest(std::size_t k, std::span<const float> values, std::span<std::uint32_t> picked);

// Writes the payload of the picked values. residual_out is +0 at their indices and the taken value elsewhere.
Encoded send_ref(const sparse::Form& form, const EncodeInput& in, std::span<const float> values,
                 std::span<const std::uint32_t> picked, Bytes out);

// The reference of gather in select_fast.h: sends the values of magnitude >= threshold; if these are more than
// limits.most, the limits.k largest of them.
Encoded send_from(std::uint32_t threshold, const Limits& limits, const sparse::Form& form,
                  const EncodeInput& in, Bytes out);

}  // namespace tithe::select
