// SPDX-License-Identifier: Apache-2.0
// The account of a made-up trace.
#include "trace/account.h"

#include <gtest/gtest.h>

namespace tithe::trace {
namespace {

TraceEvent event(std::string_view op, std::uint32_t round, int lane, std::int64_t begin, std::int64_t end) {
  TraceEvent e{.op = op, .round = round, .lane = lane, .ready_ns = begin, .begin_ns = begin, .end_ns = end};
  return e;
}

// Rounds of 1000 ns: buckets are submitted at 100 and 300, and the commit ends at 900.
RankTrace made(std::uint32_t rounds, bool marked) {
  RankTrace t;
  for (std::uint32_t r = 0; r < rounds; ++r) {
    const std::int64_t at = 1000 * (r + 1);
    const auto add = [&](std::string_view op, int lane, std::int64_t begin, std::int64_t end) {
      t.events.push_back(event(op, r, lane, at + begin, at + end));
      return &t.events.back();
    };
    if (marked) add("backward", -1, 50, 400);
    add("bucket", -1, 100, 500);
    add("bucket", -1, 300, 800);
    add("encode", 1, 110, 150)->ready_ns -= 7;
    add("own", 1, 150, 160);
    add("send", 0, 155, 300)->peer = 1;
    add("send", 0, 200, 350)->peer = 1;
    add("recv", 0, 100, 600)->peer = 1;
    add("check", 1, 600, 610);
    add("merge", 1, 610, 640)->ready_ns -= 3;
    add("store", 1, 640, 700);
    add("wait", -1, 310, 800);
    add("commit", -1, 810, 900);
  }
  return t;
}

TEST(Account, AttributesStepTimeToStages) {
  const RankTrace trace = made(6, true);
  const std::vector<Round> rounds = rounds_of(trace);
  const Account a = account(trace, rounds);
  EXPECT_EQ(a.rounds, 4U);
  EXPECT_EQ(a.step, 1000);
  EXPECT_EQ(a.encode, 50);
  EXPECT_EQ(a.merge, 90);
  EXPECT_EQ(a.other, 10);
  EXPECT_EQ(a.send, 195) << "from 155 to 350";
  EXPECT_EQ(a.queue, 10);
  EXPECT_EQ(a.waiting, 800 - (350 - 110) - (700 - 600)) << "in the span from 100 to 900";
  EXPECT_EQ(a.hidden, 300);
  EXPECT_EQ(a.open, 500);
}

TEST(Account, CommunicationDuringBackwardIsHidden) {
  const RankTrace trace = made(6, false);
  const Account a = account(trace, rounds_of(trace));
  EXPECT_EQ(a.hidden, 200) << "from the first to the last submission";
  EXPECT_EQ(a.hidden + a.open, 800);
}

TEST(Account, WarmUpRoundsAreLeftOut) {
  EXPECT_EQ(rounds_of(made(4, true)).size(), 4U);
  const std::vector<Round> five = rounds_of(made(5, true));
  ASSERT_EQ(five.size(), 3U);
  EXPECT_EQ(five[0].number, 2U);
  EXPECT_EQ(five[0].begin, 2900) << "the end of the previous commit";
}

TEST(Account, EmptyTraceGivesAnEmptyAccount) {
  const RankTrace empty;
  EXPECT_TRUE(rounds_of(empty).empty());
  EXPECT_EQ(account(empty, {}).rounds, 0U);
  RankTrace open = made(1, true);
  std::erase_if(open.events, [](const TraceEvent& e) { return e.op == "commit"; });
  EXPECT_TRUE(rounds_of(open).empty()) << "the round did not end";
}

}  // namespace
}  // namespace tithe::trace
