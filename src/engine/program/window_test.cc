// SPDX-License-Identifier: Apache-2.0
#include "engine/program/window.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace tithe::engine {
namespace {

TEST(Window, LimitsTheBytesOfActiveParts) {
  EXPECT_EQ(begins_after(std::vector<std::size_t>{5, 5, 5, 5, 5, 5}, 0),
            (std::vector<int>{-1, -1, -1, 0, 1, 2}));
  EXPECT_EQ(begins_after(std::vector<std::size_t>{5, 5, 5, 5, 5, 5}, 30), std::vector<int>(6, -1));
  EXPECT_EQ(begins_after(std::vector<std::size_t>{8, 8, 8, 1, 1}, 0), (std::vector<int>{-1, -1, -1, 0, 0}));
  EXPECT_EQ(begins_after(std::vector<std::size_t>{}, 7), std::vector<int>{});
  EXPECT_EQ(begins_after(std::vector<std::size_t>{0, 0, 0}, 0), std::vector<int>(3, -1));
}

// A part waits only for earlier parts, so every part begins, for all sizes. Parts that may be in flight together have
// separate memory, and their total is limited by the window.
TEST(Window, ActivePartsDoNotOverlapInMemory) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<std::size_t> sizes, places;
    std::size_t largest = 1, all = 0;
    for (std::uint64_t k = 0; k < 60; ++k) {
      sizes.push_back(mix64(seed ^ mix64(k)) % (seed % 2 == 0 ? 5 : 1000));
      places.push_back(sizes.back() * 3 + mix64(k) % 7);  // memory of the same parts, in another unit
      largest = std::max(largest, sizes.back());
      all += sizes.back();
    }
    const std::size_t least = seed % 3 == 0 ? 20 * largest : 0;
    const std::vector<int> after = begins_after(sizes, least);
    const Placed placed = place(places, after);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      ASSERT_LT(after[i], static_cast<int>(i));
      ASSERT_GE(after[i], i == 0 ? -1 : after[i - 1]);
      std::size_t under_way = 0;
      for (std::size_t j = static_cast<std::size_t>(after[i] + 1); j <= i; ++j) under_way += sizes[j];
      ASSERT_LE(under_way, std::max(3 * largest, least));
      ASSERT_LE(placed.at[i] + places[i], placed.size);
      for (std::size_t j = static_cast<std::size_t>(after[i] + 1); j < i; ++j)
        ASSERT_TRUE(placed.at[j] + places[j] <= placed.at[i] || placed.at[i] + places[i] <= placed.at[j])
            << "parts " << j << " and " << i << ", seed " << seed;
    }
  }
}

TEST(Window, IsSmallerIfAllRanksShareAHost) {
  const Hosts one = *Hosts::parse("4", 4), two = *Hosts::parse("2x2", 4);
  EXPECT_EQ(min_window({0, 4, &one}), std::size_t{8} << 20);
  EXPECT_EQ(min_window({0, 4, &two}), std::size_t{64} << 20);
  EXPECT_EQ(min_window({0, 4}), std::size_t{64} << 20);
}

TEST(Window, APartReusesTheMemoryOfAnEarlierPart) {
  const std::vector<std::size_t> sizes(100, 10);
  EXPECT_EQ(place(sizes, begins_after(sizes, 0)).size, 30U);
  EXPECT_EQ(place(sizes, begins_after(sizes, 2000)).size, 1000U) << "a small bucket must not be delayed";
}

}  // namespace
}  // namespace tithe::engine
