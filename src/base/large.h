// SPDX-License-Identifier: Apache-2.0
#pragma once
// Large memory that is used as a whole. The system provides it page by page on first touch: 4 KiB at a time, or 2 MiB
// with huge pages, which costs a fraction when memory is touched and freed.
#include <cstddef>
#include <memory>
#include <vector>

namespace tithe {

// For memory that has not been touched yet. A hint: nothing depends on it.
void ask_for_huge_pages(void* memory, std::size_t bytes);

// For memory whose content is not read before it is written again. Until then the system may take its pages under
// memory pressure, instead of swapping or killing a process. It takes whole huge pages, so that none is split. A hint
// as well; it costs microseconds, and nothing later if no page was taken.
void mark_discardable(void* memory, std::size_t bytes);

template <typename T>
struct LargeAllocator {
  using value_type = T;
  LargeAllocator() = default;
  template <typename U>
  explicit(false) LargeAllocator(const LargeAllocator<U>&) {}  // NOLINT(google-explicit-constructor): rebinds
  T* allocate(std::size_t n) {
    T* memory = std::allocator<T>().allocate(n);
    ask_for_huge_pages(memory, n * sizeof(T));
    return memory;
  }
  void deallocate(T* memory, std::size_t n) { std::allocator<T>().deallocate(memory, n); }
  friend bool operator==(const LargeAllocator&, const LargeAllocator&) { return true; }
};

using LargeFloats = std::vector<float, LargeAllocator<float>>;

}  // namespace tithe
