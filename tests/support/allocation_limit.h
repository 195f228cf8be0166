// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory that the unit tests' own operator new counts and refuses (src/engine/session/session_test.cc).
#include <cstddef>
#include <cstdint>

namespace tithe::testing {

std::int64_t allocated_bytes();  // by all of this process that was made with new

// From this call on, no single allocation may exceed `bytes`.
void limit_allocations(std::size_t bytes);

// limit_allocations() during the object's lifetime.
struct AllocationLimit {
  explicit AllocationLimit(std::size_t bytes) { limit_allocations(bytes); }
  ~AllocationLimit() { limit_allocations(SIZE_MAX); }
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
};

}  // namespace tithe::testing
