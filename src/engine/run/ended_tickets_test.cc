// SPDX-License-Identifier: Apache-2.0
#include "engine/run/ended_tickets.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/allocation_limit.h"

namespace tithe::engine {
namespace {

TEST(EndedTickets, once_and_in_order_each_ticket_is_reported) {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, Code>> reported;
  EndedTickets tickets([&](std::uint64_t ticket, const Status& how) {
    EXPECT_TRUE(mutex.try_lock()) << "the callback runs without the mutex";
    mutex.unlock();
    reported.emplace_back(ticket, how.code());
  });
  EXPECT_FALSE(tickets.take_pending());
  std::uint64_t first = 7, second = 8;
  tickets.add(first, {});
  tickets.add(second, {Code::kPeerLost, "gone"});
  tickets.add(first, {Code::kCancelled, "reported already"});
  EXPECT_EQ(first, 0U);
  EXPECT_TRUE(tickets.take_pending());
  EXPECT_FALSE(tickets.take_pending()) << "one thread reports";
  tickets.report(mutex);
  tickets.report(mutex);
  EXPECT_EQ(reported, (std::vector<std::pair<std::uint64_t, Code>>{{7, Code::kOk}, {8, Code::kPeerLost}}));
}

TEST(EndedTickets, steady_rounds_allocate_nothing) {
  std::mutex mutex;
  std::uint64_t reported = 0;
  EndedTickets tickets([&](std::uint64_t, const Status&) { ++reported; });
  constexpr std::uint64_t kLayouts = 20;
  tickets.expect(kLayouts);
  {
    const testing::AllocationLimit none(0);
    for (int round = 0; round < 3; ++round) {
      for (std::uint64_t number = 1; number <= 2 * kLayouts; ++number) {
        std::uint64_t ticket = number;
        tickets.add(ticket, {});
      }
      tickets.report(mutex);
    }
  }
  EXPECT_EQ(reported, 3 * 2 * kLayouts);
}

TEST(EndedTickets, without_a_callback_nothing_is_pending) {
  EndedTickets tickets(nullptr);
  std::uint64_t ticket = 7;
  tickets.add(ticket, {});
  EXPECT_FALSE(tickets.take_pending());
}

}  // namespace
}  // namespace tithe::engine
