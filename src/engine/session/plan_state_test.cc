// SPDX-License-Identifier: Apache-2.0
#include "engine/session/plan_state.h"

#include <gtest/gtest.h>

#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

PlanState plan_state_of(const SessionOptions& options, Cover checksum = Cover::kFrame) {
  return {
      options,      !options.link.empty(),   checksum,
      Stragglers{}, *choices_of(options, 2), *Schedule::parse(options.schedule, *parse_spec(options.codec))};
}

SavedHead saved(const PlanState& plan) {
  SavedHead head;
  plan.save(head);
  return head;
}

void use(PlanState& plan, std::string_view text) {
  Result<Choices> next = plan.check_proposed(text, plan.choices(), {});
  ASSERT_TRUE(next.ok()) << next.status().what();
  plan.use(std::make_shared<const Choices>(std::move(*next)), {});
}

TEST(PlanState, four_versions_follow_use_commit_and_undo) {
  PlanState plan = plan_state_of({.codec = "fp32"});
  const std::string opened = saved(plan).codec;
  EXPECT_EQ(saved(plan).opened, "");
  use(plan, R"({"*": "bf16"})");
  EXPECT_EQ(saved(plan).codec, opened);
  plan.commit();
  EXPECT_NE(saved(plan).codec, opened);
  EXPECT_EQ(saved(plan).opened, opened);
  plan.undo();
  EXPECT_EQ(saved(plan).codec, opened);
}

TEST(PlanState, checked_are_proposed_and_saved_choices) {
  PlanState plan = plan_state_of({.codec = "fp32"});
  const SavedHead before = saved(plan);
  EXPECT_EQ(*plan.check_saved(before, {}), plan.current());
  use(plan, R"({"*": "bf16"})");
  plan.commit();
  const SavedHead proposed = saved(plan);
  PlanState next = plan_state_of({.codec = "fp32"});
  const auto choices = next.check_saved(proposed, {});
  ASSERT_TRUE(choices.ok()) << choices.status().what();
  next.use(*choices, {});
  next.restore(proposed);
  EXPECT_EQ(saved(next).codec, proposed.codec);
  EXPECT_EQ(plan_state_of({.codec = "bf16"}).check_saved(before, {}).status().code(), Code::kInvalid);
  // With a checksum over headers only, a proposal and a saved state may contain fp32 alone.
  const PlanState plain = plan_state_of({.codec = "fp32"}, Cover::kHeader);
  EXPECT_EQ(plain.check_proposed(R"({"*": "bf16"})", plain.choices(), {}).status().code(), Code::kInvalid);
  EXPECT_EQ(plain.check_saved(proposed, {}).status().code(), Code::kInvalid);
  SavedHead other = before;
  other.schedule = "warmup:4";
  EXPECT_EQ(next.check_saved(other, {}).status().code(), Code::kInvalid);
}

TEST(PlanState, named_keys_must_be_tensors_of_the_first_round) {
  PlanState plan = plan_state_of({.codec = "fp32", .choices = R"({"w": "bf16"})"});
  std::vector<float> values(4);
  const Tensor v{.key = "v", .data = values.data(), .n = 4}, w{.key = "w", .data = values.data(), .n = 4};
  plan.add({&v, 1});
  EXPECT_TRUE(plan.check_rules(false).ok());
  EXPECT_EQ(plan.check_rules(true).code(), Code::kInvalid);
  plan.add({&w, 1});
  EXPECT_TRUE(plan.check_rules(true).ok());
  const TensorSizes known{{"v", 4}, {"w", 4}};
  EXPECT_TRUE(plan.check_proposed(R"({"v": "bf16"})", plan.choices(), known).ok());
  EXPECT_EQ(plan.check_proposed(R"({"u": "bf16"})", plan.choices(), known).status().code(), Code::kInvalid);
}

TEST(PlanState, AProposalIsDiscardedByItsNumber) {
  PlanState plan = plan_state_of({.codec = "fp32"});
  plan.set_built({.number = 4, .choices = plan.current(), .units = {}});
  EXPECT_FALSE(plan.discard(3).has_value());
  EXPECT_TRUE(plan.discard(4).has_value());
  EXPECT_FALSE(plan.discard(4).has_value());
  plan.set_built({.number = 5, .choices = plan.current(), .units = {}});
  EXPECT_EQ(plan.take_built().number, 5U);
  EXPECT_FALSE(plan.discard(5).has_value());
}

}  // namespace
}  // namespace tithe::engine
