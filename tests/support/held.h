// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory that the unit tests' own operator new counts and refuses (src/engine/session/session_test.cc).
#include <cstddef>
#include <cstdint>

namespace tithe::testing {

std::int64_t held_bytes();  // by all of this process that was made with new

// From now on there is no memory for more than so many bytes at once.
void have_at_most(std::size_t bytes);

// The same while it lives.
struct LittleMemory {
  explicit LittleMemory(std::size_t bytes) { have_at_most(bytes); }
  ~LittleMemory() { have_at_most(SIZE_MAX); }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;
};

}  // namespace tithe::testing
