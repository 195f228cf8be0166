// SPDX-License-Identifier: Apache-2.0
#include "engine/run/runner_lock.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/runner_parts.h"

namespace tithe::engine {
namespace {

TEST(RunnerLock, wakes_a_poll_once_and_after_the_release) {
  testing::RunnerPartsOf ranks(1);
  RunnerLock& lock = ranks[0].state.lock;
  const int& wakes = ranks[0].clock->wakes;
  RunnerLock::Hold hold(lock);
  lock.wake_poll();
  hold.unlock();
  EXPECT_EQ(wakes, 0) << "no thread polls";
  hold.take();
  lock.begin_poll();
  lock.wake_poll();
  lock.wake_poll();
  EXPECT_EQ(wakes, 0) << "the thread would wait for the mutex";
  hold.unlock();
  EXPECT_EQ(wakes, 1);
}

TEST(RunnerLock, a_pending_wake_up_is_sent_before_a_thread_sleeps) {
  testing::RunnerPartsOf ranks(1);
  RunnerLock& lock = ranks[0].state.lock;
  RunnerLock::Hold hold(lock);
  lock.begin_poll();
  lock.wake_poll();
  hold.wait_for_news();
  EXPECT_EQ(ranks[0].clock->wakes, 1);
}

TEST(RunnerLock, a_lane_sleeps_until_it_is_woken) {
  testing::RunnerPartsOf ranks(1);
  RunnerLock& lock = ranks[0].state.lock;
  bool ready = false, asleep = false;
  std::thread lane([&] {
    RunnerLock::Hold hold(lock);
    asleep = true;
    while (!ready) hold.wait_for_steps();
  });
  for (bool woken = false; !woken; std::this_thread::yield()) {
    const RunnerLock::Hold hold(lock);
    woken = asleep;
    ready = asleep;
    if (woken) lock.wake_lanes(1);
  }
  lane.join();
}

}  // namespace
}  // namespace tithe::engine
