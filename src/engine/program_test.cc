// SPDX-License-Identifier: Apache-2.0
// Which steps a plan becomes, and how the queue hands them out.
#include "engine/program.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/queue.h"
#include "tithe/spec.h"

namespace tithe::engine {
namespace {

Plan plan_of(std::span<const std::size_t> sizes, std::string_view strategy) {
  std::vector<PlanTensor> bucket;
  for (const std::size_t n : sizes) bucket.push_back({.key = "t", .n = n});
  return make_plan(bucket, Choices::of({.spec = *parse_spec("fp32"),
                                        .strategy = find_strategy(strategy),
                                        .min_values = 0,
                                        .part_values = std::size_t{1} << 30}));
}

std::size_t count(const Program& program, StepKind kind) {
  return static_cast<std::size_t>(std::count_if(program.steps.begin(), program.steps.end(),
                                                [&](const Step& s) { return s.kind == kind; }));
}

Program program_of(std::size_t n, std::string_view strategy, int world) {
  return compile(plan_of(std::span(&n, 1), strategy), 0, world, {});
}

// Every frame that comes is checked once: by its only reader where it is small, else by a step of its own. One that is
// passed on is checked before.
TEST(Program, FramesAreCheckedOnce) {
  for (const std::string_view strategy : {"server", "gather", "ring", "aggregator"})
    for (const std::size_t n : {std::size_t{100}, std::size_t{1'000'000}}) {
      const Program p = program_of(n, strategy, 4);
      SCOPED_TRACE(strategy);
      std::vector<int> checks(p.slots.size());
      for (const Step& s : p.steps)
        if (s.kind == StepKind::kCheck) ++checks[static_cast<std::size_t>(s.slot)];
      for (const Step& s : p.checks) ++checks[static_cast<std::size_t>(s.slot)];
      for (const Step& s : p.steps) {
        if (s.kind != StepKind::kRecv) continue;
        const auto slot = static_cast<std::size_t>(s.slot);
        EXPECT_EQ(checks[slot], 1);
        const auto sends = [&](const Step& other) {
          return other.kind == StepKind::kSend && other.slot == s.slot;
        };
        const bool passed_on = std::any_of(p.steps.begin(), p.steps.end(), sends);
        EXPECT_EQ(p.check_of[slot] < 0, passed_on || n > 100) << "slot " << slot;
      }
      EXPECT_EQ(p.checks.size() + count(p, StepKind::kCheck), count(p, StepKind::kRecv));
    }
}

TEST(Program, StepsThatWaitForNoneComeFirst) {
  const Program p = program_of(1000, "server", 3);
  for (std::size_t s = 0; s < p.steps.size(); ++s) {
    EXPECT_EQ(p.waits[s], p.steps[s].waits);
    EXPECT_EQ(std::count(p.first.begin(), p.first.end(), static_cast<int>(s)), p.waits[s] == 0 ? 1 : 0);
  }
}

// A round's first steps: a load per tensor.
std::size_t takes(std::vector<std::size_t> sizes, std::size_t room, int lanes, std::size_t skip = 0) {
  std::vector<TensorLayout> layout;
  std::size_t first = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    layout.push_back({std::to_string(k), sizes[k], DType::kF32, first, k, 0});
    first += sizes[k];
  }
  Queue queue;
  Job& job = queue.add(
      std::make_unique<Unit>(Member{}, layout, plan_of(sizes, "gather"), 0, std::span<const double>{}), {});
  queue.begin(job, {});
  queue.run(job);
  std::vector<Task> out(room);
  for (; skip > 0; --skip) queue.take(std::span(out).first(1), 1);
  const std::size_t count = queue.take(out, lanes);
  for (std::size_t k = 0; k < count; ++k) EXPECT_EQ(out[k].what().kind, StepKind::kLoad);
  return count;
}

TEST(Queue, several) {
  EXPECT_EQ(takes(std::vector<std::size_t>(40, 100), 32, 1), 32U) << "as many as there is room for";
  EXPECT_EQ(takes(std::vector<std::size_t>(40, 100), 64, 4), 10U) << "a lane's share";
  EXPECT_EQ(takes(std::vector<std::size_t>(40, 1000), 64, 1), 8U) << "that together weigh little";
  EXPECT_EQ(takes({100'000, 100}, 32, 1), 1U) << "what weighs much, alone";
  EXPECT_EQ(takes({100, 100'000}, 32, 1), 1U) << "nothing that weighs much behind it";
  EXPECT_EQ(takes({100, 100'000}, 32, 1, 1), 1U);
  EXPECT_EQ(takes({100}, 32, 1, 1), 0U);
}

}  // namespace
}  // namespace tithe::engine
