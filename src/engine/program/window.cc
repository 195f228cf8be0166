// SPDX-License-Identifier: Apache-2.0
#include "engine/program/window.h"

#include <algorithm>

#include "engine/program/program.h"

namespace tithe::engine {

std::size_t min_window(const Place& at) {
  const bool one_host = at.hosts != nullptr && at.hosts->count(at.world) == 1;
  return one_host ? kMinWindow / 8 : kMinWindow;
}

std::vector<int> begins_after(std::span<const std::size_t> sizes, std::size_t least) {
  constexpr std::size_t kParts = 3;  // one is encoded, one is in flight, one is stored
  std::size_t largest = 0;
  for (const std::size_t s : sizes) largest = std::max(largest, s);
  const std::size_t window = std::max(kParts * largest, least);
  std::vector<int> out;
  std::size_t first = 0, under_way = 0;
  for (const std::size_t s : sizes) {
    under_way += s;
    while (under_way > window) under_way -= sizes[first++];
    out.push_back(static_cast<int>(first) - 1);
  }
  return out;
}

// First fit: parts begin in order and end nearly in order.
Placed place(std::span<const std::size_t> sizes, std::span<const int> begins_after) {
  struct Taken {
    std::size_t at, end;
    int part;
  };
  std::vector<Taken> taken;  // by address
  Placed out;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::erase_if(taken, [&](const Taken& t) { return t.part <= begins_after[i]; });
    std::size_t at = 0;
    auto before = taken.begin();
    for (; before != taken.end() && before->at < at + sizes[i]; ++before) at = before->end;
    taken.insert(before, {at, at + sizes[i], static_cast<int>(i)});
    out.at.push_back(at);
    out.size = std::max(out.size, at + sizes[i]);
  }
  return out;
}

}  // namespace tithe::engine
