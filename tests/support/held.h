// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the unit tests' own operator new counts (src/engine/session_test.cc).
#include <cstdint>

namespace tithe::testing {

std::int64_t held_bytes();  // by all of this process that was made with new

}  // namespace tithe::testing
