// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of a bucket that may be under way at the same time, and where the memory of each lies: a part that begins
// when an earlier one is over may have its place.
#include <cstddef>
#include <span>
#include <vector>

namespace tithe::engine {

// By part: all parts up to this one are over before it begins; -1: it begins at once. Parts that are under way together
// are at most four of the largest, or `least` if that is more.
std::vector<int> begins_after(std::span<const std::size_t> sizes, std::size_t least);

struct Placed {
  std::vector<std::size_t> at;  // by part
  std::size_t size = 0;         // of all
};
// Parts that may be under way together do not overlap.
Placed place(std::span<const std::size_t> sizes, std::span<const int> begins_after);

}  // namespace tithe::engine
