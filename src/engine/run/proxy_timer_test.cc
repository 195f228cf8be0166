// SPDX-License-Identifier: Apache-2.0
#include "engine/run/proxy_timer.h"

#include <gtest/gtest.h>

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;

constexpr Instant kStart{std::chrono::hours(1)};

class ProxyTimerTest : public ::testing::Test {
 protected:
  std::uint64_t called_ = 99;
  std::vector<Peer> peers_ = std::vector<Peer>(3);
  Rounds rounds_{0, peers_};
  ProxyTimer timer_{ProxyTrigger{
      .others_at_least = 2, .share = 0.5, .due = [this](std::uint64_t ended) { called_ = ended; }}};
};

TEST_F(ProxyTimerTest, is_due_half_of_the_others_time_after_enough_others_began) {
  timer_.end_round(kStart);
  peers_[1].begun = 1;
  EXPECT_FALSE(timer_.check(rounds_, peers_, kStart + milliseconds(100))) << "one other rank has begun";
  peers_[2].begun = 1;
  EXPECT_EQ(timer_.check(rounds_, peers_, kStart + milliseconds(200)), kStart + milliseconds(300));
  EXPECT_FALSE(timer_.pending());
  EXPECT_FALSE(timer_.check(rounds_, peers_, kStart + milliseconds(300)));
  const std::uint64_t pending = timer_.take_pending();
  ASSERT_EQ(pending, 1U);
  EXPECT_EQ(timer_.take_pending(), 0U);
  timer_.run(pending);
  EXPECT_EQ(called_, 0U) << "no round has ended";
  timer_.check(rounds_, peers_, kStart + milliseconds(400));
  EXPECT_FALSE(timer_.pending()) << "once per round";
}

TEST_F(ProxyTimerTest, a_rank_that_has_begun_needs_no_proxy) {
  timer_.end_round(kStart);
  peers_[1].begun = peers_[2].begun = 1;
  EXPECT_EQ(timer_.check(rounds_, peers_, kStart), kStart + kMinLate);
  rounds_.begin(0);
  EXPECT_FALSE(timer_.check(rounds_, peers_, kStart + milliseconds(500)));
  EXPECT_FALSE(timer_.pending());
}

}  // namespace
}  // namespace tithe::engine
