// SPDX-License-Identifier: Apache-2.0
#pragma once
// The values [first, first + n) of a bucket.
#include <algorithm>
#include <cstddef>

namespace tithe::feedback {

struct ValueRange {
  std::size_t first = 0;
  std::size_t n = 0;
};

// Calls body(k, from, to) for each tensor k that shares the values [from, to) of the bucket with `part`. A tensor is
// any type with `first` and `n`; tensors are in order.
template <typename Tensors, typename Body>
void each_tensor_in(const Tensors& tensors, ValueRange part, Body body) {
  const auto end = part.first + part.n;
  auto at = std::partition_point(std::begin(tensors), std::end(tensors),
                                 [&](const auto& t) { return t.first + t.n <= part.first; });
  for (; at != std::end(tensors) && at->first < end; ++at)
    if (at->n > 0)
      body(static_cast<std::size_t>(at - std::begin(tensors)), std::max(part.first, at->first),
           std::min(end, at->first + at->n));
}

}  // namespace tithe::feedback
