// SPDX-License-Identifier: Apache-2.0
#include "engine/run/message_io.h"

#include <gtest/gtest.h>

#include "support/runner_parts.h"
#include "tithe/choices.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

// Rank 1 of a `gather` of one tensor waits for the frame of rank 0.
class MessageIoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const PlanTensor tensor{.key = "w", .n = values_.size()};
    const Result<Choices> choices = Choices::make(*parse_rules("{}"), {.spec = *parse_spec("fp32"),
                                                                       .strategy = find_strategy("gather"),
                                                                       .min_values = 0,
                                                                       .part_values = 1000,
                                                                       .world = 2});
    std::vector<TensorLayout> layout = {{"w", values_.size(), DType::kF32, 0, 0, 0}};
    job_ = &state_.queue.add(
        std::make_unique<Unit>(state_.member, std::move(layout), make_plan({&tensor, 1}, *choices),
                               std::span<const double>{}),
        {});
    job_->labels = state_.recorder.labels(*job_->unit);
    ranks_[1].io.expect(job_->unit->program());
    const Tensor bucket{.key = "w", .data = values_.data(), .n = values_.size()};
    job_->unit->begin({&bucket, 1}, 0);
    state_.queue.begin(*job_, {});
    state_.queue.run(*job_);
  }
  std::size_t in_flight() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(job_->posted_ns, [](std::int64_t posted) { return posted != 0; }));
  }

  std::vector<float> values_ = std::vector<float>(100, 1.0F);
  testing::RunnerPartsOf ranks_{2};
  RunnerState& state_ = ranks_[1].state;
  Job* job_ = nullptr;
};

TEST_F(MessageIoTest, a_receive_is_posted_and_finishes_its_step) {
  EXPECT_TRUE(ranks_[1].io.has_ready());
  ranks_[1].turn();
  EXPECT_FALSE(ranks_[1].io.has_ready());
  ASSERT_EQ(in_flight(), 1U);
  const std::vector<std::uint8_t> frame(64);
  ASSERT_TRUE(ranks_[0].clock->send(1, job_->unit->channel(0), frame, 1).ok());
  ranks_[1].turn();
  EXPECT_EQ(ranks_[1].finished, 1);
  EXPECT_EQ(in_flight(), 0U);
  EXPECT_EQ(state_.peer(0).last_progress, ranks_[1].clock->time);
}

TEST_F(MessageIoTest, a_lost_peer_ends_the_session) {
  ranks_[1].turn();
  ranks_.close(0);
  ranks_[1].turn();
  ASSERT_FALSE(ranks_[1].failures.open());
  EXPECT_EQ(state_.shutdown.report_of(1)->blamed, 0);
  EXPECT_FALSE(ranks_[1].io.has_ready());
}

TEST_F(MessageIoTest, a_cancelled_receive_waits_for_the_farewell_of_the_peer) {
  ranks_[1].turn();
  ranks_[1].io.cancel_all();
  ranks_[1].turn();
  EXPECT_EQ(ranks_[1].finished, 0);
  EXPECT_TRUE(ranks_[1].failures.open());
  EXPECT_TRUE(state_.peer(0).cancelled);
}

}  // namespace
}  // namespace tithe::engine
