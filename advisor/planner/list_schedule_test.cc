// SPDX-License-Identifier: Apache-2.0
#include "advisor/planner/list_schedule.h"

#include <gtest/gtest.h>

namespace tithe::planner {
namespace {

// Compute 1, up 2, down 2, then compute 1. Alone, up and down overlap.
const PartCost kOne{{{1, 2, 2, 0}, {1, 0, 0, 0}}};

TEST(ListSchedule, StagesOfAPartAreSequential) {
  const Times t = ListSchedule().run({{0, 0, 1, &kOne}}, 1);
  EXPECT_DOUBLE_EQ(t.end, 4);
  EXPECT_DOUBLE_EQ(t.compute, 2);
  EXPECT_DOUBLE_EQ(t.up, 2);
  EXPECT_DOUBLE_EQ(t.down, 2);
}

TEST(ListSchedule, PartsOverlapOnDifferentResources) {
  // The second item computes while the first is on the link. Its transfer begins when the first one has left, at 3, and
  // ends at 5; its last computation ends at 6.
  const Times t = ListSchedule().run({{0, 0, 2, &kOne}}, 1);
  EXPECT_DOUBLE_EQ(t.end, 6);
}

TEST(ListSchedule, DelayOccupiesNoResource) {
  const PartCost far{{{0, 1, 1, 10}, {1, 0, 0, 0}}};
  EXPECT_DOUBLE_EQ(ListSchedule().run({{0, 0, 1, &far}}, 1).end, 12);
  // Ten items share the link, but their delays overlap.
  EXPECT_DOUBLE_EQ(ListSchedule().run({{0, 0, 10, &far}}, 1).end, 21);
}

// Graham's anomaly. B becomes ready to encode at 0.6; A's message arrives at 1 or, with half the delay, at 0.5. If it
// arrives late, the lane encodes B first, and merging A (10) overlaps B's transfer (10). If it arrives early, the lane
// merges A first, and B's transfer begins only afterwards.
TEST(ListSchedule, HalfTheDelayCanTakeLonger) {
  const PartCost b{{{1, 10, 10, 0}}};
  const PartCost late{{{0, 0, 0, 1}, {10, 0, 0, 0}}}, soon{{{0, 0, 0, 0.5}, {10, 0, 0, 0}}};
  EXPECT_DOUBLE_EQ(ListSchedule().run({{0, 0, 1, &late}, {0.6, 0, 1, &b}}, 1).end, 11.6);
  EXPECT_DOUBLE_EQ(ListSchedule().run({{0, 0, 1, &soon}, {0.6, 0, 1, &b}}, 1).end, 21.5);
}

TEST(ListSchedule, PriorityOrdersReadyParts) {
  const PartCost long_one{{{0, 5, 5, 0}}};
  // Both are ready at once. The later one in the list has priority, so it ends at 1.
  const PartCost after{{{0, 1, 1, 0}, {10, 0, 0, 0}}};
  EXPECT_DOUBLE_EQ(ListSchedule().run({{0, 0, 1, &long_one}, {0, 0, 1, &after}}, 1).end, 16);
  EXPECT_DOUBLE_EQ(ListSchedule().run({{0, 0, 1, &long_one}, {0, 1, 1, &after}}, 1).end, 11);
}

TEST(ListSchedule, NoStageStartsBeforeItIsReady) {
  EXPECT_DOUBLE_EQ(ListSchedule().run({{7, 0, 1, &kOne}}, 1).end, 11);
  EXPECT_DOUBLE_EQ(ListSchedule().run({}, 1).end, 0);
}

TEST(ListSchedule, LanesComputeInParallel) {
  const PartCost compute{{{3, 0, 0, 0}}};
  EXPECT_DOUBLE_EQ(ListSchedule().run({{0, 0, 4, &compute}}, 1).end, 12);
  EXPECT_DOUBLE_EQ(ListSchedule().run({{0, 0, 4, &compute}}, 2).end, 6);
}

}  // namespace
}  // namespace tithe::planner
