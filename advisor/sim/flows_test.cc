// SPDX-License-Identifier: Apache-2.0
#include "advisor/sim/flows.h"

#include <gtest/gtest.h>

#include "advisor/sim/cores.h"

namespace tithe::sim {
namespace {

using Tags = std::vector<std::uint64_t>;

Tags tags(std::span<const std::uint64_t> ended) { return {ended.begin(), ended.end()}; }

TEST(Flows, OneFlowTakesBytesDividedByRate) {
  Flows flows({100.0});
  const int link[] = {0};
  flows.start(flows.route(link), 250, 7, 1.0);
  EXPECT_DOUBLE_EQ(flows.next_end(), 3.5);
  EXPECT_EQ(tags(flows.advance(3.5)), Tags{7});
  EXPECT_EQ(flows.next_end(), kNever);
  EXPECT_NEAR(flows.carried(0), 250, 1e-6);
}

TEST(Flows, TwoFlowsShareALinkUntilOneEnds) {
  Flows flows({100.0});
  const int link[] = {0};
  flows.start(flows.route(link), 100, 1, 0);
  flows.start(flows.route(link), 200, 2, 0);
  EXPECT_DOUBLE_EQ(flows.next_end(), 2.0);
  EXPECT_EQ(tags(flows.advance(2.0)), Tags{1});
  EXPECT_DOUBLE_EQ(flows.next_end(), 3.0);  // 100 bytes are left, at the full rate
}

// Links A (100) and B (30): the flow over both gets B's share, and the flow over A alone gets the rest of A.
TEST(Flows, SharesAreMaxMinFair) {
  Flows flows({100.0, 30.0});
  const int both[] = {0, 1}, b[] = {1}, a[] = {0};
  flows.start(flows.route(both), 15, 1, 0);
  flows.start(flows.route(b), 15, 2, 0);
  flows.start(flows.route(a), 85, 3, 0);
  EXPECT_DOUBLE_EQ(flows.next_end(), 1.0);
  EXPECT_EQ(tags(flows.advance(1.0)), (Tags{1, 2, 3}));
}

TEST(Flows, EmptyAndLinklessFlowsEndAtOnce) {
  Flows flows({1.0});
  const int link[] = {0};
  flows.start(flows.route(link), 0, 1, 5.0);
  flows.start(flows.route({}), 1e9, 2, 5.0);
  EXPECT_DOUBLE_EQ(flows.next_end(), 5.0);
  EXPECT_EQ(tags(flows.advance(5.0)), (Tags{1, 2}));
}

TEST(Flows, FlowsOfOneRouteShareLikeFlowsOfTwoRoutes) {
  Flows one({100.0}), two({100.0});
  const int link[] = {0};
  const int shared = one.route(link);
  for (int k = 0; k < 3; ++k) {
    one.start(shared, 10.0 * (k + 1), k, 0.1 * k);
    two.start(two.route(link), 10.0 * (k + 1), k, 0.1 * k);
  }
  for (int k = 0; k < 3; ++k) {
    EXPECT_DOUBLE_EQ(one.next_end(), two.next_end());
    EXPECT_EQ(tags(one.advance(one.next_end())), tags(two.advance(two.next_end())));
  }
  EXPECT_EQ(one.active(), 0U);
}

TEST(Flows, BytesAreConservedOverManyChanges) {
  Flows flows({10.0, 20.0, 5.0});
  double sent = 0;
  Seconds now = 0;
  for (int k = 0; k < 200; ++k) {
    const int links[] = {k % 3, (k + 1) % 3};
    const double bytes = 1 + k % 17;
    sent += 2 * bytes;
    flows.start(flows.route(links), bytes, 0, now);
    now = std::min(now + 0.3, flows.next_end());
    static_cast<void>(flows.advance(now));
  }
  while (flows.next_end() != kNever) static_cast<void>(flows.advance(flows.next_end()));
  EXPECT_NEAR(flows.carried(0) + flows.carried(1) + flows.carried(2), sent, 1.0);
  EXPECT_EQ(flows.active(), 0U);
}

// Two hosts that send to each other get a smaller rate than a single sender.
TEST(Flows, DuplexFlowsGetTheirShare) {
  Flows flows({100, 100, 100, 100}, 0.75);
  const int there[] = {0, 3}, back[] = {2, 1};
  const int a = flows.route(there), b = flows.route(back);
  flows.oppose(a, b);
  flows.start(a, 75, 1, 0);
  EXPECT_DOUBLE_EQ(flows.next_end(), 0.75);
  flows.start(b, 75, 2, 0);
  EXPECT_DOUBLE_EQ(flows.next_end(), 1.0);
}

TEST(Cores, ExcessThreadsShareTheCores) {
  Cores cores(2);
  cores.start(1.0, 1, 0);
  cores.start(1.0, 2, 0);
  EXPECT_DOUBLE_EQ(cores.next_end(), 1.0);
  cores.start(1.0, 3, 0);
  cores.start(1.0, 4, 0);
  EXPECT_DOUBLE_EQ(cores.next_end(), 2.0);
  EXPECT_EQ(cores.advance(2.0).size(), 4U);
  EXPECT_DOUBLE_EQ(cores.used(), 4.0);
  EXPECT_EQ(cores.next_end(), kNever);
}

// Two threads on one core alternate. A woken thread waits for the end of the slice and then runs first.
TEST(Cores, WokenThreadsWaitForTheEndOfASlice) {
  Cores cores(1, 1, 0.25);
  const auto step = [&] {
    const Seconds end = cores.next_end();
    const auto ended = cores.advance(end);
    return std::pair(end, ended.empty() ? std::uint64_t{0} : ended[0]);
  };
  using End = std::pair<Seconds, std::uint64_t>;
  cores.start(0.5, 1, 0);
  cores.start(0.5, 2, 0);
  EXPECT_EQ(step(), End(0.25, 0));
  static_cast<void>(cores.next_end());  // work 2 runs now
  static_cast<void>(cores.advance(0.375));
  cores.start(0.125, 3, 0.375);
  EXPECT_EQ(step(), End(0.5, 0));
  EXPECT_EQ(step(), End(0.625, 3));
  EXPECT_EQ(step(), End(0.875, 1));
  EXPECT_EQ(step(), End(1.125, 2));
  EXPECT_EQ(cores.next_end(), kNever);
  EXPECT_DOUBLE_EQ(cores.used(), 1.125);
}

// Work that waits for a busy core moves to a free core, but only after a wait.
TEST(Cores, FreeCoreRunsTheWaitingThread) {
  Cores cores(2, 1, 1.0, 0.5);
  cores.start(0.25, 1, 0);
  cores.start(2.0, 2, 0);
  EXPECT_DOUBLE_EQ(cores.next_end(), 0.25);
  static_cast<void>(cores.advance(0.125));
  cores.start(0.25, 3, 0.125);  // waits behind 1
  cores.start(0.25, 4, 0.125);  // waits behind 2
  EXPECT_DOUBLE_EQ(cores.next_end(), 0.25);
  EXPECT_EQ(cores.advance(0.25)[0], 1U);
  EXPECT_DOUBLE_EQ(cores.next_end(), 0.5);
  EXPECT_EQ(cores.advance(0.5)[0], 3U);
  EXPECT_DOUBLE_EQ(cores.next_end(), 0.625);
  EXPECT_TRUE(cores.advance(0.625).empty());  // 4 moves to the free core
  EXPECT_DOUBLE_EQ(cores.next_end(), 0.875);
  EXPECT_EQ(cores.advance(0.875)[0], 4U);
}

// Work that a thread starts when its previous work ends continues the same slice.
TEST(Cores, SameThreadContinues) {
  Cores cores(1, 1, 1.0);
  cores.start(0.25, 1, 0);
  cores.start(0.25, 2, 0);
  ASSERT_EQ(cores.advance(cores.next_end()).size(), 1U);
  cores.start(0.5, 1, 0.25);
  EXPECT_DOUBLE_EQ(cores.next_end(), 0.75);
  EXPECT_EQ(cores.advance(0.75)[0], 1U);
  EXPECT_DOUBLE_EQ(cores.next_end(), 1.0);
  EXPECT_EQ(cores.advance(1.0)[0], 2U);
}

TEST(Cores, SlicesDoNotSlowASingleThread) {
  Cores cores(2, 1, 0.01);
  cores.start(1.0, 1, 0);
  cores.start(2.0, 2, 0);
  EXPECT_DOUBLE_EQ(cores.next_end(), 1.0);
  EXPECT_EQ(cores.advance(1.0)[0], 1U);
  EXPECT_DOUBLE_EQ(cores.next_end(), 2.0);
}

TEST(Cores, ZeroWorkEndsAtOnce) {
  Cores cores(1);
  cores.start(0, 9, 2.5);
  EXPECT_DOUBLE_EQ(cores.next_end(), 2.5);
  ASSERT_EQ(cores.advance(2.5).size(), 1U);
}

TEST(Flows, OnlySeveralSendersReduceALinkRate) {
  // Two uplinks lead to one downlink with a many-to-one share.
  const auto seconds = [](std::initializer_list<int> from, bool any) {
    Flows flows({1e9, 1e9, 1e9});
    flows.limit_many_to_one(2, 0.5, any);
    for (const int link : from) {
      const int way[] = {link, 2};
      flows.start(flows.route(way), 1e9, 0, 0);
    }
    Seconds end = 0;
    while (flows.active() > 0) flows.advance(end = flows.next_end());
    return end;
  };
  EXPECT_DOUBLE_EQ(seconds({0}, false), 1);
  EXPECT_DOUBLE_EQ(seconds({0, 0}, false), 2)
      << "flows of one sender share its uplink, so the downlink keeps its rate";
  EXPECT_DOUBLE_EQ(seconds({0, 1}, false), 4) << "flows of two senders have a share of the downlink";
  EXPECT_DOUBLE_EQ(seconds({0, 0}, true), 4) << "one route represents several senders";
}

}  // namespace
}  // namespace tithe::sim
