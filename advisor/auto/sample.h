// SPDX-License-Identifier: Apache-2.0
#pragma once
// Samples gradients of a job for measuring codecs whose sizes depend on the values, such as zip.
//
// Each tensor of a round contributes in proportion to its size, in whole blocks of kBlock values. A round with a value
// that is not finite is dropped. take() allocates no memory.
#include <cstddef>
#include <span>
#include <vector>

#include "tithe/session.h"

namespace tithe::automatic {

class Sample {
 public:
  static constexpr std::size_t kMaxValues = std::size_t{1} << 18;  // values
  static constexpr std::size_t kBlock = 1024;

  Sample() : open_(kMaxValues), committed_(kMaxValues) {}
  // Samples a bucket of fp32 values before it is exchanged; other types are ignored.
  void take(std::span<const Tensor> bucket);
  void round_over();
  // The values of the last complete round; empty if there is none.
  std::vector<float> values() const { return {committed_.begin(), committed_.begin() + committed_count_}; }

 private:
  std::vector<float> open_, committed_;  // of this round; of the last complete one
  std::size_t count_ = 0;
  std::ptrdiff_t committed_count_ = 0;
  std::size_t seen_ = 0, total_ = 0;  // values of this round, and of the previous one
};

}  // namespace tithe::automatic
