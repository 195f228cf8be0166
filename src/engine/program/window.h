// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of a bucket that may be under way at the same time, and where the memory of each lies: a part that begins
// when an earlier one is over may have its place.
#include <cstddef>
#include <span>
#include <vector>

#include "tithe/seam/graph.h"

namespace tithe::engine {

// Bytes that a bucket may have under way in any case. Where all ranks share a host, what stays in the caches of a
// processor (bench/results/wire.md); else so much that a long way is not idle: kLeastWindow.
std::size_t least_window(const Place& at);

// By part: all parts up to this one are over before it begins; -1: it begins at once. Parts that are under way together
// are at most three of the largest, or `least` if that is more.
std::vector<int> begins_after(std::span<const std::size_t> sizes, std::size_t least);

struct Placed {
  std::vector<std::size_t> at;  // by part
  std::size_t size = 0;         // of all
};
// Parts that may be under way together do not overlap.
Placed place(std::span<const std::size_t> sizes, std::span<const int> begins_after);

}  // namespace tithe::engine
