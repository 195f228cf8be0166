// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bump allocator for one call: consecutive pieces of the caller's scratch, each aligned to 64 bytes. A user takes
// all its pieces in one function. Run on a measuring CallMemory, the same function computes the scratch size.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::lang {

class CallMemory {
 public:
  // Measures only: take() returns nullptr.
  CallMemory() = default;
  // If the caller's scratch is smaller than `need`, the call allocates its own memory, as check and combine may.
  CallMemory(Bytes scratch, std::size_t need) : there_(true), size_(need) {
    if (scratch.size() >= need) {
      at_ = scratch.data();
      return;
    }
    own_ = std::make_unique_for_overwrite<std::uint8_t[]>(need + kAlign);
    const auto begin = reinterpret_cast<std::uintptr_t>(own_.get());
    at_ = own_.get() + (kAlign - begin % kAlign) % kAlign;
  }

  // Space for `count` objects; nothing is constructed. Returns nullptr when measuring.
  template <typename T>
  T* take(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kAlign);
    const std::size_t at = used_;
    used_ += (count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    if (!there_) return nullptr;
    TITHE_ASSERT(used_ <= size_);
    return reinterpret_cast<T*>(at_ + at);
  }
  std::size_t used() const { return used_; }
  // Releases all pieces.
  void begin_again() { used_ = 0; }

 private:
  static constexpr std::size_t kAlign = 64;
  std::unique_ptr<std::uint8_t[]> own_;
  std::uint8_t* at_ = nullptr;
  bool there_ = false;
  std::size_t size_ = 0, used_ = 0;
};

}  // namespace tithe::lang
