// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory that the unit tests' own operator new counts and refuses (src/engine/session/session_test.cc).
#include <cstddef>
#include <cstdint>

namespace tithe::testing {

std::int64_t held_bytes();  // by all of this process that was made with new

// From this call on, no single allocation may exceed `bytes`.
void have_at_most(std::size_t bytes);

// have_at_most() during the object's lifetime.
struct LittleMemory {
  explicit LittleMemory(std::size_t bytes) { have_at_most(bytes); }
  ~LittleMemory() { have_at_most(SIZE_MAX); }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;
};

}  // namespace tithe::testing
