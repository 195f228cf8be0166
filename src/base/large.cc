// SPDX-License-Identifier: Apache-2.0
#include "base/large.h"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstdint>

namespace tithe {

void ask_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  // Large enough to contain at least one huge page at any alignment.
  constexpr std::size_t kMinBytes = std::size_t{4} << 20;
  if (bytes < kMinBytes) return;
  // Extends the range to whole pages at both ends, so that an allocation with its own mapping stays one mapping.
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(memory) % page;
  const std::size_t length = (before + bytes + page - 1) / page * page;
  (void)madvise(static_cast<std::byte*>(memory) - before, length, MADV_HUGEPAGE);
#endif
}

void mark_discardable([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_FREE
  constexpr std::uintptr_t kHuge = std::uintptr_t{2} << 20;
  const auto first = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = (first + kHuge - 1) / kHuge * kHuge, end = (first + bytes) / kHuge * kHuge;
  if (begin < end) (void)madvise(static_cast<std::byte*>(memory) + (begin - first), end - begin, MADV_FREE);
#endif
}

}  // namespace tithe
