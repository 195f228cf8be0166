// SPDX-License-Identifier: Apache-2.0
#include "feedback/lost_rank_residuals.h"

#include <gtest/gtest.h>

namespace tithe::carry {
namespace {

Kept owing(std::vector<float> residual, std::vector<float> velocity = {}) {
  Kept k;
  k.n = residual.size();
  k.loose_residual = std::move(residual);
  k.loose_velocity = std::move(velocity);
  return k;
}

TEST(Estate, IsWhole) {
  for (const std::size_t n : {0U, 1U, 5U, 64U, 1001U})
    for (const int world : {1, 2, 3, 7, 1500}) {
      std::vector<float> owed(n), velocity(n);
      for (std::size_t i = 0; i < n; ++i) owed[i] = velocity[i] = static_cast<float>(i) + 0.5F;
      Store::Map estate;
      estate["w"] = owing(owed, velocity);
      std::vector<float> sum(n), moving(n);
      Book book;
      for (int r = 0; r < world; ++r) {
        Store::Map mine;
        inherit(estate, r, world, mine, book);
        EXPECT_EQ(mine["w"].n, n);
        for (std::size_t i = 0; i < mine["w"].loose_residual.size(); ++i) {
          sum[i] += mine["w"].loose_residual[i];
          moving[i] += mine["w"].loose_velocity[i];
        }
      }
      EXPECT_EQ(sum, owed) << n << " among " << world;
      EXPECT_EQ(moving, velocity);
      EXPECT_TRUE(book.empty());
    }
}

TEST(Estate, WhatWouldBeNoFloatIsBooked) {
  Store::Map estate, mine;
  estate["w"] = owing({3e38F, 1.0F, -3e38F});
  mine["w"] = owing({3e38F, 2.0F, 3e38F});
  Book book;
  inherit(estate, 0, 1, mine, book);
  EXPECT_EQ(mine["w"].loose_residual, (std::vector<float>{3e38F, 3.0F, 0.0F}));
  EXPECT_EQ(book["w"].values, 1U);
  EXPECT_EQ(book["w"].sum, double{3e38F});
}

TEST(Estate, WhatIsGivenUpIsBooked) {
  Store::Map estate;
  estate["a"] = owing({1.0F, 0.0F, -3.0F});
  estate["b"] = owing({0.0F});
  Book book;
  give_up(estate, book);
  give_up(estate, book);
  ASSERT_EQ(book.size(), 1U);
  EXPECT_EQ(book["a"].values, 4U);
  EXPECT_EQ(book["a"].sum, -4.0);
}

}  // namespace
}  // namespace tithe::carry
