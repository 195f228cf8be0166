// SPDX-License-Identifier: Apache-2.0
#include "engine/run/layout_agreement.h"

#include <gtest/gtest.h>

#include "support/runner_parts.h"

namespace tithe::engine {
namespace {

class LayoutAgreementTest : public ::testing::Test {
 protected:
  Job& add() {
    Job& job = state_.queue.add(program_);
    job.card = card(job.number);
    state_.queue.show(job);
    return job;
  }
  static Card card(std::uint32_t number) {
    return {
        .number = number, .world = 2, .values = 8, .proposed_job = 3, .codec = "fp32", .strategy = "ring"};
  }
  Status take(Card received) { return ranks_[0].agreement.take_card(1, received); }

  testing::RunnerPartsOf ranks_{2};
  RunnerState& state_ = ranks_[0].state;
  LayoutAgreement& agreement_ = ranks_[0].agreement;
  Program program_;
};

TEST_F(LayoutAgreementTest, a_layout_is_agreed_when_all_cards_are_equal) {
  const Job& first = add();
  const Job& second = add();
  EXPECT_TRUE(agreement_.match_cards().ok());
  EXPECT_FALSE(first.agreed) << "the card of rank 1 is missing";
  EXPECT_TRUE(take(card(0)).ok());
  EXPECT_TRUE(agreement_.match_cards().ok());
  EXPECT_TRUE(first.agreed);
  EXPECT_FALSE(second.agreed);
  EXPECT_EQ(agreement_.job(), 3U);
  EXPECT_EQ(state_.peer(1).first_card, 1U);
}

TEST_F(LayoutAgreementTest, different_cards_are_a_mismatch) {
  add();
  Card other = card(0);
  other.values = 9;
  EXPECT_TRUE(take(other).ok());
  EXPECT_EQ(agreement_.match_cards().code(), Code::kMismatch);
}

TEST_F(LayoutAgreementTest, cards_come_in_order_and_are_bounded) {
  EXPECT_EQ(take(card(1)).code(), Code::kCorrupt) << "card 0 is the next one";
  for (std::uint32_t k = 0; k < kMaxCardsAhead; ++k) ASSERT_TRUE(take(card(k)).ok());
  EXPECT_EQ(take(card(kMaxCardsAhead)).peer(), 1);
}

TEST_F(LayoutAgreementTest, the_first_card_of_a_layout_announces_its_bucket) {
  Job& job = state_.queue.add(program_);
  job.card = card(0);
  EXPECT_EQ(agreement_.next_entry(job, 4).place, 0U);
  EXPECT_EQ(job.card.place, 0U);
  EXPECT_GT(job.card_bytes, 0U);
  EXPECT_TRUE(agreement_.end_entry().is_end);
}

}  // namespace
}  // namespace tithe::engine
