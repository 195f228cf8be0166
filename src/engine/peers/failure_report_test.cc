// SPDX-License-Identifier: Apache-2.0
#include "engine/peers/failure_report.h"

#include <gtest/gtest.h>

namespace tithe::engine {
namespace {

Testimony silent(Rank witness, Rank blamed, std::vector<Rank> unheard) {
  return {.finding = Finding::kSilent,
          .code = Code::kTimeout,
          .witness = witness,
          .blamed = blamed,
          .round = 3,
          .unheard = std::move(unheard),
          .what = "nothing was heard from it"};
}

TEST(Verdict, RanksThatHeardTheSameNameTheSame) {
  Testimonies said(4);
  said[0] = silent(0, 2, {2});
  said[1] = silent(0, 2, {2});
  said[3] = silent(3, 2, {2});
  for (const Rank mine : {0, 1, 3}) EXPECT_EQ(judge(mine, said).peer(), 2);
}

// A link that heals just after the timeout: what the cut-off rank says of the others speaks against itself.
TEST(Verdict, WhoHearsNobodyAccusesItself) {
  Testimonies said(4);
  said[2] = silent(2, 1, {0, 1, 3});
  EXPECT_EQ(judge(2, said).peer(), 2) << "alone";
  said[0] = silent(0, 2, {2});
  EXPECT_EQ(judge(0, said).peer(), 2);
  said[1] = silent(2, 1, {});  // told by rank 2 first
  EXPECT_EQ(judge(1, said).peer(), 2);
}

TEST(Verdict, ALinkBetweenTwoThatAreHeardIsNobodysFault) {
  Testimonies said(3);
  said[0] = silent(0, 2, {2});
  said[2] = silent(2, 0, {0});
  said[1] = silent(0, 2, {});
  for (const Rank mine : {0, 1, 2}) EXPECT_EQ(judge(mine, said).peer(), Status::kNoPeer);
}

// The rank that spoke went because of another one; and nothing is said twice.
TEST(Verdict, TheMessengerIsNotTheOneToName) {
  Testimonies said(3);
  said[0] = {Finding::kGone, Code::kPeerLost, 0, 1, 3, true, {}, "rank 1 is gone: Connection reset"};
  said[1] = {Finding::kAccused, Code::kCorrupt, 1, 2, 3, true, {}, "rank 2: checksum"};
  EXPECT_EQ(judge(0, said).code(), Code::kCorrupt);
  EXPECT_EQ(judge(0, said).peer(), 2);
  said[1].reset();
  EXPECT_EQ(judge(0, said).what(), "round 3: rank 1 is gone (Connection reset)");
}

// Once the words decided: a peer whose process "ran into its timeout" was taken for silent.
TEST(Verdict, TheCodeSaysWhetherAnEndWasSeen) {
  EXPECT_EQ(lost({Code::kPeerLost, "its process ran into a timeout and ended"}), Finding::kGone);
  EXPECT_EQ(lost({Code::kTimeout, "its connection broke"}), Finding::kSilent);
}

TEST(Verdict, TheRoundIsTheFirstThatNobodyHasCommitted) {
  Testimonies said(3);
  said[0] = silent(0, 2, {2});
  said[1] = silent(0, 2, {2});
  said[1]->round = 4;
  EXPECT_EQ(failed_round(said), 4U);
  EXPECT_TRUE(judge(0, said).what().starts_with("round 4: "));
}

}  // namespace
}  // namespace tithe::engine
