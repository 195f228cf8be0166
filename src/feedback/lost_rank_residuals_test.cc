// SPDX-License-Identifier: Apache-2.0
#include "feedback/lost_rank_residuals.h"

#include <gtest/gtest.h>

namespace tithe::feedback {
namespace {

TensorState with_residual(std::vector<float> residual, std::vector<float> velocity = {}) {
  TensorState k;
  k.n = residual.size();
  k.loose_residual = std::move(residual);
  k.loose_velocity = std::move(velocity);
  return k;
}

TEST(LostRankResiduals, SharesSumToTheResidual) {
  for (const std::size_t n : {0U, 1U, 5U, 64U, 1001U})
    for (const int world : {1, 2, 3, 7, 1500}) {
      std::vector<float> unsent(n), velocity(n);
      for (std::size_t i = 0; i < n; ++i) unsent[i] = velocity[i] = static_cast<float>(i) + 0.5F;
      ResidualStore::Map lost;
      lost["w"] = with_residual(unsent, velocity);
      std::vector<float> sum(n), moving(n);
      LostResiduals book;
      for (int r = 0; r < world; ++r) {
        ResidualStore::Map mine;
        redistribute(lost, r, world, mine, book);
        EXPECT_EQ(mine["w"].n, n);
        for (std::size_t i = 0; i < mine["w"].loose_residual.size(); ++i) {
          sum[i] += mine["w"].loose_residual[i];
          moving[i] += mine["w"].loose_velocity[i];
        }
      }
      EXPECT_EQ(sum, unsent) << n << " among " << world;
      EXPECT_EQ(moving, velocity);
      EXPECT_TRUE(book.empty());
    }
}

TEST(LostRankResiduals, NonFiniteSharesAreBooked) {
  ResidualStore::Map lost, mine;
  lost["w"] = with_residual({3e38F, 1.0F, -3e38F});
  mine["w"] = with_residual({3e38F, 2.0F, 3e38F});
  LostResiduals book;
  redistribute(lost, 0, 1, mine, book);
  EXPECT_EQ(mine["w"].loose_residual, (std::vector<float>{3e38F, 3.0F, 0.0F}));
  EXPECT_EQ(book["w"].values, 1U);
  EXPECT_EQ(book["w"].sum, double{3e38F});
}

TEST(LostRankResiduals, DroppedResidualsAreBooked) {
  ResidualStore::Map lost;
  lost["a"] = with_residual({1.0F, 0.0F, -3.0F});
  lost["b"] = with_residual({0.0F});
  LostResiduals book;
  discard(lost, book);
  discard(lost, book);
  ASSERT_EQ(book.size(), 1U);
  EXPECT_EQ(book["a"].values, 4U);
  EXPECT_EQ(book["a"].sum, -4.0);
}

}  // namespace
}  // namespace tithe::feedback
