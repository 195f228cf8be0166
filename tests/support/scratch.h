// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tithe/seam/codec.h"

namespace tithe {

// The scratch that a Call needs for n values, and not a byte more; full of rubbish.
class ScratchForTest {
 public:
  ScratchForTest(const Codec& codec, const Settings& settings, std::size_t n)
      : bytes_(codec.scratch(settings, n)),
        room_((bytes_ + 127) / 64 * 64),
        at_(static_cast<std::uint8_t*>(std::aligned_alloc(64, room_)), &std::free) {
    static std::atomic<std::uint8_t> rubbish{0x5a};
    std::memset(at_.get(), rubbish = static_cast<std::uint8_t>(rubbish * 5 + 1), room_);
  }
  operator Bytes() const { return {at_.get(), bytes_}; }

 private:
  std::size_t bytes_;
  std::size_t room_;
  std::unique_ptr<std::uint8_t, decltype(&std::free)> at_;
};

}  // namespace tithe
