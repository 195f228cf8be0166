// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory for frames and scratch: 64-byte aligned; its pages are not touched before use.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "base/large.h"

namespace tithe::engine {

struct FreeBytes {
  void operator()(std::uint8_t* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Arena = std::unique_ptr<std::uint8_t[], FreeBytes>;

inline Arena make_arena(std::size_t bytes) {
  return Arena(
      static_cast<std::uint8_t*>(::operator new[](std::max<std::size_t>(bytes, 64), std::align_val_t{64})));
}

// Touches all of it, so that no step pays for page faults.
inline void touch(const Arena& arena, std::size_t bytes) {
  ask_for_huge_pages(arena.get(), bytes);
  std::fill_n(arena.get(), bytes, std::uint8_t{0});
}

}  // namespace tithe::engine
