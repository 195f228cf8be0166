// SPDX-License-Identifier: Apache-2.0
#include "engine/peers/failure_report.h"

#include <gtest/gtest.h>

namespace tithe::engine {
namespace {

FailureReport silent(Rank witness, Rank blamed, std::vector<Rank> silent_peers) {
  return {.finding = Finding::kSilent,
          .code = Code::kTimeout,
          .witness = witness,
          .blamed = blamed,
          .round = 3,
          .silent_peers = std::move(silent_peers),
          .what = "nothing was heard from it"};
}

TEST(FailureReport, EqualReportsNameTheSameRank) {
  FailureReports reports(4);
  reports[0] = silent(0, 2, {2});
  reports[1] = silent(0, 2, {2});
  reports[3] = silent(3, 2, {2});
  for (const Rank mine : {0, 1, 3}) EXPECT_EQ(judge(mine, reports).peer(), 2);
}

// A link recovers just after the timeout: the reports of the cut-off rank about all others count against itself.
TEST(FailureReport, ARankThatReceivesFromNoPeerIsBlamed) {
  FailureReports reports(4);
  reports[2] = silent(2, 1, {0, 1, 3});
  EXPECT_EQ(judge(2, reports).peer(), 2) << "its own report alone";
  reports[0] = silent(0, 2, {2});
  EXPECT_EQ(judge(0, reports).peer(), 2);
  reports[1] = silent(2, 1, {});  // caused by rank 2's report
  EXPECT_EQ(judge(1, reports).peer(), 2);
}

TEST(FailureReport, ABrokenLinkBetweenTwoLiveRanksNamesNoRank) {
  FailureReports reports(3);
  reports[0] = silent(0, 2, {2});
  reports[2] = silent(2, 0, {0});
  reports[1] = silent(0, 2, {});
  for (const Rank mine : {0, 1, 2}) EXPECT_EQ(judge(mine, reports).peer(), Status::kNoPeer);
}

// A rank that reported ended because of its own finding; and the text contains the reason once.
TEST(FailureReport, ARankThatReportsAFindingIsNotBlamed) {
  FailureReports reports(3);
  reports[0] = {Finding::kGone, Code::kPeerLost, 0, 1, 3, true, {}, "rank 1 is gone: Connection reset"};
  reports[1] = {Finding::kAccused, Code::kCorrupt, 1, 2, 3, true, {}, "rank 2: checksum"};
  EXPECT_EQ(judge(0, reports).code(), Code::kCorrupt);
  EXPECT_EQ(judge(0, reports).peer(), 2);
  reports[1].reset();
  EXPECT_EQ(judge(0, reports).what(), "round 3: rank 1 is gone (Connection reset)");
}

// The code decides, not the text: a text may contain the word "timeout" in either case.
TEST(FailureReport, TheStatusCodeDeterminesTheFinding) {
  EXPECT_EQ(lost({Code::kPeerLost, "its process ran into a timeout and ended"}), Finding::kGone);
  EXPECT_EQ(lost({Code::kTimeout, "its connection broke"}), Finding::kSilent);
}

TEST(FailureReport, TheRoundIsTheFirstThatNoRankHasCommitted) {
  FailureReports reports(3);
  reports[0] = silent(0, 2, {2});
  reports[1] = silent(0, 2, {2});
  reports[1]->round = 4;
  EXPECT_EQ(failed_round(reports), 4U);
  EXPECT_TRUE(judge(0, reports).what().starts_with("round 4: "));
}

}  // namespace
}  // namespace tithe::engine
