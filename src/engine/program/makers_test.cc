// SPDX-License-Identifier: Apache-2.0
#include "engine/program/makers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tithe::engine {
namespace {

TEST(Makers, AreComputedOncePerStrategy) {
  KnownMakers known;
  const Strategy& ring = *find_strategy("ring");
  const auto first = known.of(ring, {1, 5});
  EXPECT_EQ(known.of(ring, {1, 5}), first);
  EXPECT_NE(known.of(*find_strategy("server"), {1, 5}), first);
}

TEST(Makers, OfASumAreAllRanksMergedIntoIt) {
  constexpr int kWorld = 5;
  const Makers makers(*find_strategy("server"), {2, kWorld});
  EXPECT_TRUE(makers.any_merge());
  const auto nodes = makers.graph().nodes();
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    if (nodes[k].op != Op::kRecv) continue;
    const std::vector<Rank>& of = makers.of(static_cast<int>(k));
    ASSERT_FALSE(of.empty());
    EXPECT_EQ(of[0], nodes[k].arg) << "node " << k;  // with `server` no rank forwards a frame
    if (makers.graph().chunk_of(static_cast<int>(k)) == 2) {
      EXPECT_EQ(of.size(), 1U) << "a worker's own frame has one maker";
    } else {
      std::vector<Rank> sorted(of), all(kWorld);
      std::sort(sorted.begin(), sorted.end());
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(sorted, all) << "all ranks are makers of a server's sum";
    }
  }
}

TEST(Makers, OfAForwardedFrameIsTheRankThatEncodedIt) {
  constexpr int kWorld = 6;
  const Makers makers(*find_strategy("ring"), {0, kWorld});
  const auto nodes = makers.graph().nodes();
  std::vector<Rank> makers_of_all;
  for (std::size_t k = 0; k < nodes.size(); ++k)
    if (nodes[k].op == Op::kRecv && makers.of(static_cast<int>(k)).size() == kWorld)
      makers_of_all.push_back(makers.of(static_cast<int>(k))[0]);
  std::sort(makers_of_all.begin(), makers_of_all.end());
  EXPECT_EQ(makers_of_all.size(), kWorld - 1U) << "the sums of the other ranks' chunks";
  EXPECT_EQ(std::unique(makers_of_all.begin(), makers_of_all.end()), makers_of_all.end());
  EXPECT_FALSE(Makers(*find_strategy("gather"), {0, kWorld}).any_merge());
}

}  // namespace
}  // namespace tithe::engine
