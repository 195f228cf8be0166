// SPDX-License-Identifier: Apache-2.0
#include "transport/spin_guard.h"

#include <gtest/gtest.h>

namespace tithe {
namespace {

// Turns of a loop in half a second that is woken for nothing each time.
TEST(SpinGuard, turns_become_few_and_a_line_says_so_once) {
  SpinGuard guard;
  for (int k = 0; k < SpinGuard::kMost; ++k) guard.woken_for_nothing();
  EXPECT_TRUE(guard.said().empty());
  const auto begin = std::chrono::steady_clock::now();
  int turns = 0;
  for (; std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200); ++turns)
    guard.woken_for_nothing();
  EXPECT_LE(turns, 201);
  EXPECT_EQ(guard.said().size(), 1U);
  EXPECT_TRUE(guard.said().empty());
}

// A loop that now and then has something to do is not held up.
TEST(SpinGuard, movement_ends_the_pauses) {
  SpinGuard guard;
  for (int k = 0; k < 100 * SpinGuard::kMost; ++k) {
    if (k % SpinGuard::kMost == 0) guard.moved();
    guard.woken_for_nothing();
  }
  EXPECT_TRUE(guard.said().empty());
}

}  // namespace
}  // namespace tithe
