// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of one call: pieces one behind the other in the caller's scratch, each at a multiple of 64 bytes. Whatever
// works in it asks for its pieces in one function; told to measure, that function says how much scratch is needed.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "tithe/byte_view.h"
#include "tithe/status.h"

namespace tithe::lang {

class CallMemory {
 public:
  // Measures: pieces are counted, and there are none.
  CallMemory() = default;
  // A caller that brings less scratch than is needed has memory of the call's own: check and combine may.
  CallMemory(Bytes scratch, std::size_t need) : there_(true), size_(need) {
    if (scratch.size() >= need) {
      at_ = scratch.data();
      return;
    }
    own_ = std::make_unique_for_overwrite<std::uint8_t[]>(need + kAlign);
    const auto begin = reinterpret_cast<std::uintptr_t>(own_.get());
    at_ = own_.get() + (kAlign - begin % kAlign) % kAlign;
  }

  // Room for so many of a type that needs no destructor; nothing is constructed. nullptr: it measures.
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
  // Gives all pieces back.
  void begin_again() { used_ = 0; }

 private:
  static constexpr std::size_t kAlign = 64;
  std::unique_ptr<std::uint8_t[]> own_;
  std::uint8_t* at_ = nullptr;
  bool there_ = false;
  std::size_t size_ = 0, used_ = 0;
};

}  // namespace tithe::lang
