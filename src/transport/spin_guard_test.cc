// SPDX-License-Identifier: Apache-2.0
#include "transport/spin_guard.h"

#include <gtest/gtest.h>

namespace tithe {
namespace {

TEST(SpinGuard, idle_polls_become_rare_and_are_reported_once) {
  SpinGuard guard(100);
  for (int k = 0; k < SpinGuard::kMaxIdlePolls; ++k) guard.idle_wakeup();
  const auto begin = std::chrono::steady_clock::now();
  for (int k = 1; k < 100; ++k) guard.idle_wakeup();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 99 * SpinGuard::kPause);
  EXPECT_TRUE(guard.messages().empty());
  guard.idle_wakeup();
  EXPECT_EQ(guard.messages().size(), 1U);
  EXPECT_TRUE(guard.messages().empty());
}

// A peer that is preempted in the middle of a message leaves the queue ready until it runs again.
TEST(SpinGuard, a_pause_that_ends_is_not_reported) {
  SpinGuard guard(100);
  for (int round = 0; round < 3; ++round) {
    for (int k = 0; k < SpinGuard::kMaxIdlePolls + 60; ++k) guard.idle_wakeup();
    guard.moved();
  }
  EXPECT_TRUE(guard.messages().empty());
}

// A loop with occasional work is not delayed.
TEST(SpinGuard, progress_ends_the_pauses) {
  SpinGuard guard;
  for (int k = 0; k < 100 * SpinGuard::kMaxIdlePolls; ++k) {
    if (k % SpinGuard::kMaxIdlePolls == 0) guard.moved();
    guard.idle_wakeup();
  }
  EXPECT_TRUE(guard.messages().empty());
}

}  // namespace
}  // namespace tithe
