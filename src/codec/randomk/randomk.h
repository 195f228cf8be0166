// SPDX-License-Identifier: Apache-2.0
#pragma once
// randomk: k values at random indices that are equal on all ranks, so that payloads add up as arrays (Wangni et al.,
// "Gradient Sparsification for Communication-Efficient Distributed Optimization", 2018; Stich et al., "Sparsified SGD
// with Memory", 2018). Payloads contain no indices: they start with the key of the draws.
//
//   k        max(1, ceil(ratio * n))
//   indices  one drawn from each of k strata of about n / k values, by (shared seed, round, tensor, chunk). A value is
//            sent with probability 1 / (length of its stratum), at least 1 / ceil(n / k). So
//              E |x - sent|^2 <= (1 - 1 / ceil(n / k)) |x|^2
//            as with k indices drawn from all n, but the indices come in order and no gap is long
//   values   unscaled, not multiplied by n / k: the residual makes up for the values that are not sent
//
// combine adds value by value in fp32 and writes the sums in the payloads' form; the rounding error is added to
// residual_out.
//
// Layout   u64 key | u32 k | u8 values | 3 x u8 0 | value array (codec/shared/sparse/sparse_values.h)
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/rng.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec randomk_codec;
}

namespace tithe::randomk {

// The indices of one payload, in increasing order: n values are cut into `count` strata whose lengths differ by at most
// one, and one index is drawn from each. Depends on the arguments only, so ranks with the same key draw the same
// indices. Stratum j is [floor(j n / count), floor((j + 1) n / count)); next() needs no division.
class IndexDraws {
 public:
  // Starts at stratum `first`.
  IndexDraws(std::uint64_t key, std::size_t n, std::size_t count, std::size_t first = 0)
      : key_(key), count_(count), j_(first) {
    if (count == 0) return;
    length_ = n / count;
    extra_ = n % count;
    low_ = first * n / count;
    rest_ = first * n % count;
    draw();
  }
  bool done() const { return j_ == count_; }
  std::uint32_t index() const { return index_; }
  void next() {
    low_ += length();
    rest_ += extra_;
    if (rest_ >= count_) rest_ -= count_;
    ++j_;
    draw();
  }

 private:
  std::size_t length() const { return length_ + (rest_ + extra_ >= count_ ? 1 : 0); }
  void draw() {
    if (!done())
      index_ = static_cast<std::uint32_t>(
          low_ + (std::uint64_t{draw32(key_, static_cast<std::uint32_t>(j_))} * length() >> 32));
  }

  std::uint64_t key_;
  std::size_t count_;
  std::size_t length_ = 0;  // length of the shorter strata
  std::size_t extra_ = 0;
  std::size_t j_;
  std::size_t low_ = 0;
  std::size_t rest_ = 0;  // j * n mod count
  std::uint32_t index_ = 0;
};

// Writes the indices of strata first, first + 1, ... of IndexDraws(key, n, count), by SIMD; n < 2^32.
void list_indices(std::uint64_t key, std::size_t n, std::size_t count, std::size_t first,
                  std::span<std::uint32_t> indices);

}  // namespace tithe::randomk
