// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of a bucket that may be active at the same time, and the addresses of their memory: a part can reuse the
// memory of a part that must have ended before it begins.
#include <cstddef>
#include <span>
#include <vector>

#include "tithe/seam/graph.h"

namespace tithe::engine {

// The minimum number of bytes that a bucket may have in flight. If all ranks share a host, an amount that stays in
// the processor's caches (lab/results/wire.md); otherwise an amount that keeps a long link busy: kMinWindow.
std::size_t min_window(const Place& at);

// By part: the part begins when all parts up to this index have ended; -1: immediately. The parts active at the same
// time need at most three times the largest size, or `least` if that is larger.
std::vector<int> begins_after(std::span<const std::size_t> sizes, std::size_t least);

struct Placed {
  std::vector<std::size_t> at;  // by part
  std::size_t size = 0;         // total
};
// Parts that may be active at the same time do not overlap.
Placed place(std::span<const std::size_t> sizes, std::span<const int> begins_after);

}  // namespace tithe::engine
