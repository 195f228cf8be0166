// SPDX-License-Identifier: Apache-2.0
#include "base/number_set.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace tithe {
namespace {

TEST(NumberSet, MinimumEqualsThatOfAnOrderedSet) {
  for (const std::size_t bound : {1UL, 2UL, 63UL, 64UL, 65UL, 4096UL, 4097UL, 300'000UL}) {
    NumberSet set;
    set.resize(bound);
    std::set<std::size_t> want;
    EXPECT_TRUE(set.empty());
    for (std::uint64_t k = 0; k < 2000; ++k) {
      const std::uint64_t draw = mix64(k ^ bound);
      const std::size_t number = draw / 4 % bound;
      if (draw % 4 == 0 && !want.empty()) {
        set.erase(*want.begin());
        want.erase(want.begin());
      } else if (draw % 4 == 1) {
        set.erase(number);
        want.erase(number);
      } else {
        set.insert(number);
        want.insert(number);
      }
      ASSERT_EQ(set.empty(), want.empty());
      if (!want.empty()) {
        ASSERT_EQ(set.least(), *want.begin()) << "of " << bound << " after " << k;
      }
    }
    set.insert(bound - 1);
    set.clear();
    EXPECT_TRUE(set.empty());
  }
}

TEST(NumberSet, NoNumbersIsEmpty) {
  NumberSet set;
  EXPECT_TRUE(set.empty());
  set.resize(0);
  EXPECT_TRUE(set.empty());
  set.clear();
  EXPECT_TRUE(set.empty());
}

}  // namespace
}  // namespace tithe
