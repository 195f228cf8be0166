// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that is large and used as a whole. The system gives it page by page as it is first touched, 4 KiB at a time
// unless it is asked for more: then 2 MiB, where it has them, which costs a fraction in touching and in freeing.
#include <cstddef>
#include <memory>
#include <vector>

namespace tithe {

// For memory that is not touched yet. A wish: nothing depends on it.
void ask_for_huge_pages(void* memory, std::size_t bytes);

// For memory whose contents nobody reads again before they are written anew: until then the system may take its pages,
// where it lacks some, instead of swapping or ending a process. It takes whole huge pages, so that none is split. A
// wish as well; it costs microseconds, and nothing later where no page was taken.
void lend(void* memory, std::size_t bytes);

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
