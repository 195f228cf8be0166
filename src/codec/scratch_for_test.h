// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdlib>
#include <memory>

#include "tithe/codec.h"

namespace tithe {

// What Call::scratch must be, for n values.
class ScratchForTest {
 public:
  ScratchForTest(const Codec& codec, const Settings& settings, std::size_t n)
      : bytes_((codec.scratch(settings, n) + 64) / 64 * 64),
        at_(static_cast<std::uint8_t*>(std::aligned_alloc(64, bytes_)), &std::free) {}
  operator Bytes() const { return {at_.get(), bytes_}; }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::uint8_t, decltype(&std::free)> at_;
};

}  // namespace tithe
