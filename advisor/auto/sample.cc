// SPDX-License-Identifier: Apache-2.0
// Two buffers: one is filled during a round, the other holds the last complete round.
#include "advisor/auto/sample.h"

#include <algorithm>
#include <cstring>

#include "base/finite.h"

namespace tithe::automatic {

void Sample::take(std::span<const Tensor> bucket) {
  for (const Tensor& t : bucket) {
    if (t.dtype != DType::kF32) continue;
    seen_ += t.n;
    if (total_ == 0) continue;  // the total is known only after one round
    const double part = std::min(1.0, static_cast<double>(kMaxValues) / static_cast<double>(total_));
    const auto wanted = static_cast<std::size_t>(part * static_cast<double>(t.n));
    const std::size_t n = std::min({(wanted + kBlock - 1) / kBlock * kBlock, t.n, kMaxValues - count_});
    if (n == 0) continue;
    std::memcpy(&open_[count_], t.data, n * sizeof(float));
    count_ += n;
  }
}

void Sample::round_over() {
  if (count_ > 0 && all_finite({open_.data(), count_})) {
    std::swap(open_, committed_);
    committed_count_ = static_cast<std::ptrdiff_t>(count_);
  }
  total_ = seen_;
  seen_ = count_ = 0;
}

}  // namespace tithe::automatic
