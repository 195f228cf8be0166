// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of a job, to measure codecs with: how small zip makes them, and others whose sizes depend on the values.
//
//   spread   over all tensors of a round, each by its part of all values, whole blocks of kBlock of them
//   finite   a round with a value that is not is left out
//   steady   take() allocates nothing
#include <cstddef>
#include <span>
#include <vector>

#include "tithe/session.h"

namespace tithe::automatic {

class Sample {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 18;  // values
  static constexpr std::size_t kBlock = 1024;

  Sample() : open_(kMost), kept_(kMost) {}
  // Takes from a bucket in fp32, before it is exchanged; other types are left out.
  void take(std::span<const Tensor> bucket);
  void round_over();
  // The values of the last round that was whole; empty where there is none.
  std::vector<float> values() const { return {kept_.begin(), kept_.begin() + kept_count_}; }

 private:
  std::vector<float> open_, kept_;  // of this round; of the last
  std::size_t count_ = 0;
  std::ptrdiff_t kept_count_ = 0;
  std::size_t seen_ = 0, total_ = 0;  // values of this round, and of the last
};

}  // namespace tithe::automatic
