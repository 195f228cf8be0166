// SPDX-License-Identifier: Apache-2.0
#include "engine/session/layout_table.h"

#include <gtest/gtest.h>

#include "support/allocation_limit.h"
#include "tithe/connect.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

constexpr RoundKind kSum = RoundKind::kAllReduce;

// The table of a job with one rank and no lanes.
class LayoutTableOfOneRank : public ::testing::Test {
 protected:
  static Choices choices_for(std::string_view codec) {
    return Choices::of({.spec = *parse_spec(codec), .strategy = find_strategy("ring"), .min_values = 0});
  }
  std::vector<Tensor> bucket(std::initializer_list<std::string_view> keys, std::size_t n = 4) {
    std::vector<Tensor> out;
    for (const std::string_view key : keys) out.push_back({.key = key, .data = values_.data(), .n = n});
    return out;
  }
  LayoutEntry* find(std::span<const Tensor> bucket) {
    return layouts_.find(bucket, kSum, layout_hash(bucket, kSum));
  }
  LayoutEntry& add(std::span<const Tensor> bucket) {
    return layouts_.add(bucket, kSum, layout_hash(bucket, kSum), choices_, {}, store_);
  }

  std::vector<float> values_ = std::vector<float>(16);
  Member member_;
  Runner runner_{std::move(open_loop(1)[0]),
                 member_,
                 0,
                 {std::chrono::seconds(10), std::chrono::seconds(10), {}},
                 {},
                 {}};
  LayoutTable layouts_{member_, {}, runner_};
  feedback::ResidualStore store_;
  Choices choices_ = choices_for("bf16");
};

TEST_F(LayoutTableOfOneRank, once_a_known_layout_is_found_by_its_hash) {
  EXPECT_EQ(find(bucket({"a", "b"})), nullptr);
  LayoutEntry& ab = add(bucket({"a", "b"}));
  EXPECT_EQ(find(bucket({"a", "b"})), &ab);
  EXPECT_EQ(find(bucket({"b", "a"})), nullptr);
  EXPECT_EQ(find(bucket({"a", "b"}, 5)), nullptr);
  EXPECT_EQ(ab.kept.size(), 2U);
  EXPECT_EQ(store_.find("a")->n, 4U);
  ab.begin(9, 0);
  EXPECT_EQ(layouts_.find(9), &ab);
  EXPECT_EQ(layouts_.find(8), nullptr);
}

TEST_F(LayoutTableOfOneRank, ANewLayoutMustAgreeWithTheKnownTensors) {
  add(bucket({"a", "b"}));
  const auto code = [&](std::span<const Tensor> b, RoundKind kind) {
    return layouts_.check_new(b, kind, store_, 0).code();
  };
  EXPECT_EQ(code(bucket({"a"}), kSum), Code::kOk);
  EXPECT_EQ(code(bucket({"c", "c"}), kSum), Code::kInvalid);
  EXPECT_EQ(code(bucket({"a"}, 5), kSum), Code::kInvalid);
  EXPECT_EQ(code(bucket({"a"}), RoundKind::kReduceScatter), Code::kInvalid);
  EXPECT_EQ(code(bucket({"c"}), RoundKind::kReduceScatter), Code::kOk);
}

TEST_F(LayoutTableOfOneRank, ATensorCanBeInARoundOnlyOnce) {
  LayoutEntry& ab = add(bucket({"a", "b"}));
  LayoutEntry& b = add(bucket({"b"}));
  EXPECT_FALSE(layouts_.any_open());
  for (feedback::TensorState* kept : ab.kept) kept->use(1);
  ab.begin(1, 0);
  EXPECT_TRUE(layouts_.any_open());
  EXPECT_EQ(LayoutTable::check_not_open(ab, 0).code(), Code::kInvalid);
  EXPECT_EQ(LayoutTable::check_not_open(b, 0).code(), Code::kInvalid);
  EXPECT_TRUE(LayoutTable::check_not_open(b, 1).ok());
  EXPECT_EQ(layouts_.check_new(bucket({"a"}), kSum, store_, 0).code(), Code::kInvalid);
}

TEST_F(LayoutTableOfOneRank, bounded_an_unused_layout_is_removed) {
  LayoutEntry& ab = add(bucket({"a", "b"}));
  ab.begin(1, 0);
  for (const std::string_view key : {"a", "b"}) store_.of(key).used = 1 + LayoutTable::kRoundsToForget;
  store_.of("b").used -= 1;
  layouts_.forget_gone();
  EXPECT_NE(find(bucket({"a", "b"})), nullptr);
  store_.of("b").used += 1;
  layouts_.forget_gone();
  EXPECT_EQ(find(bucket({"a", "b"})), nullptr);
}

TEST_F(LayoutTableOfOneRank, steady_calls_for_a_known_layout_allocate_nothing) {
  const std::vector<Tensor> ab = bucket({"a", "b"});
  const LayoutEntry& added = add(ab);
  LayoutEntry* found = nullptr;
  bool ready = false, open = false;
  {
    const testing::AllocationLimit none(0);
    found = find(ab);
    ready = LayoutTable::check_not_open(*found, 0).ok();
    found->begin(1, 0);
    open = layouts_.find(1) == found && layouts_.any_open();
  }
  EXPECT_EQ(found, &added);
  EXPECT_TRUE(ready && open);
}

TEST_F(LayoutTableOfOneRank, RebuiltUnitsKeepTheResiduals) {
  const std::vector<Tensor> ab = bucket({"a", "b"});
  LayoutEntry& entry = add(ab);
  const std::vector<float> residual{1, 2, 3, 4};
  store_.of("b").loose_residual = residual;
  for (std::size_t i = 0; i < 2; ++i)
    entry.kept[i]->move_to(entry.unit().feedback(), entry.unit().tensors()[i].slice());
  const SeenLayout seen = layouts_.seen().at(0);
  EXPECT_EQ(seen.keys, (std::vector<std::string>{"a", "b"}));
  const Choices next = choices_for("onebit");
  UnitsByJob built;
  built.emplace(seen.job, layouts_.unit_of(seen.bucket, kSum, next, seen.transferable));
  Unit* const unit = built.at(seen.job).get();
  layouts_.rebuild(next, std::move(built), {});
  EXPECT_EQ(&entry.unit(), unit);
  EXPECT_NE(entry.job->number, seen.job);
  const std::span<const float> kept = store_.find("b")->residual();
  EXPECT_EQ(std::vector<float>(kept.begin(), kept.end()), residual);
  layouts_.rebuild(choices_, {}, {});  // without built units
  const std::span<const float> still = store_.find("b")->residual();
  EXPECT_EQ(std::vector<float>(still.begin(), still.end()), residual);
  EXPECT_EQ(find(ab), &entry);
}

}  // namespace
}  // namespace tithe::engine
