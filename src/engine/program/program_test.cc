// SPDX-License-Identifier: Apache-2.0
// The steps that a plan becomes, and how the queue hands them out.
#include "engine/program/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/program/laws.h"
#include "engine/program/window.h"
#include "engine/run/queue.h"
#include "tithe/seam/catalogue.h"

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
  return compile(plan_of(std::span(&n, 1), strategy), {0, world}, {});
}

// Every frame that comes is checked once: by its only reader where it is small or that goes through it in order, else
// by a step of its own. One that is passed on is checked before.
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
        const auto any = [&](StepKind kind) {
          return std::any_of(p.steps.begin(), p.steps.end(),
                             [&](const Step& other) { return other.kind == kind && other.slot == s.slot; });
        };
        const bool passed_on = any(StepKind::kSend) && !any(StepKind::kEncode);  // and not added to
        const bool in_order = std::any_of(p.steps.begin(), p.steps.end(), [&](const Step& other) {
          return (other.onto || (other.kind == StepKind::kStore && other.frames.count == 1)) &&
                 p.indices[other.frames.first] == s.slot;
        });
        EXPECT_EQ(p.check_of[slot] < 0, passed_on || (n > 100 && !in_order)) << "slot " << slot;
      }
      EXPECT_EQ(p.checks.size() + count(p, StepKind::kCheck), count(p, StepKind::kRecv));
    }
}

TEST(Program, StepsThatWaitForNoneComeFirst) {
  const Program p = program_of(1000, "server", 3);
  for (std::size_t s = 0; s < p.steps.size(); ++s) {
    const std::vector<int>& first = p.parts[static_cast<std::size_t>(p.steps[s].part)].first;
    EXPECT_EQ(p.waits[s], p.steps[s].waits);
    EXPECT_EQ(std::count(first.begin(), first.end(), static_cast<int>(s)), p.waits[s] == 0 ? 1 : 0);
  }
}

// By chunk: how often its values come in, and whether they do before everything else that reads or writes it.
void expect_loaded_once(const Plan& plan, const Place& at, const std::vector<bool>& copied) {
  const Program p = compile(plan, at, {}, {}, nullptr, copied);
  std::vector<std::vector<bool>> before(p.steps.size(), std::vector<bool>(p.steps.size()));
  for (std::size_t s = 0; s < p.steps.size(); ++s)  // steps stand in an order in which they can run
    for (std::uint32_t k = 0; k < p.steps[s].next.count; ++k) {
      const auto next = static_cast<std::size_t>(p.indices[p.steps[s].next.first + k]);
      ASSERT_GT(next, s);
      before[next][s] = true;
      for (std::size_t b = 0; b < s; ++b)
        if (before[s][b]) before[next][b] = true;
    }
  for (std::size_t part = 0; part < p.parts.size(); ++part)
    for (Chunk c = 0; c < p.parts[part].chunks; ++c) {
      std::vector<std::size_t> loads, users;
      for (std::size_t s = 0; s < p.steps.size(); ++s) {
        const Step& step = p.steps[s];
        if (step.part != static_cast<int>(part)) continue;
        const bool load = step.kind == StepKind::kLoad;
        if (step.loads || load)
          if (step.chunk == c || step.chunk == kWholePart) loads.push_back(s);
        const bool uses = step.kind == StepKind::kOwn || step.kind == StepKind::kEncode ||
                          step.kind == StepKind::kMerge || step.kind == StepKind::kStore;
        if (uses && step.chunk == c) users.push_back(s);
      }
      ASSERT_EQ(loads.size(), 1U) << "part " << part << ", chunk " << c;
      for (const std::size_t u : users) EXPECT_TRUE(u == loads[0] || before[u][loads[0]]);
    }
}

TEST(Program, AChunkIsLoadedOnceByWhoTouchesItFirst) {
  for (const char* codec :
       {"fp32", "onebit", "topk", "powersgd:cols=10", "scalecom", "onebit:clip=1", "topk:feedback=momentum"})
    for (const Strategy* strategy : all_strategies()) {
      const Spec spec = *parse_spec(codec);
      if (!choose_laws(spec, *strategy).ok()) continue;
      for (const std::size_t n : {std::size_t{1000}})
        for (int world = 1; world <= 4; ++world)
          for (Rank me = 0; me < world; ++me)
            for (const bool copied : {false, true}) {
              SCOPED_TRACE(std::string(codec) + " by " + std::string(strategy->name));
              const PlanTensor bucket[] = {{.key = "t", .n = n, .row = 10}};
              const Plan plan = make_plan(bucket, Choices::of({.spec = spec,
                                                               .strategy = strategy,
                                                               .min_values = 0,
                                                               .part_values = 600,
                                                               .world = world}));
              expect_loaded_once(plan, {me, world}, std::vector<bool>(plan.parts.size(), copied));
            }
    }
}

// No step waits for all chunks of its part, nor does nothing: not where clipping needs the norm of all values.
TEST(Program, NoStepIsForAWholePart) {
  for (const std::string_view strategy : {"server", "gather", "ring", "aggregator"}) {
    EXPECT_EQ(count(program_of(1000, strategy, 4), StepKind::kLoad), 0U) << strategy;
    const std::size_t n = 1000;
    const Plan plan = plan_of(std::span(&n, 1), strategy);
    const Program copied = compile(plan, {0, 4}, {}, {}, nullptr, {true});
    for (const Step& s : copied.steps) EXPECT_NE(s.chunk, kWholePart);
  }
}

// The payloads of fp32 are what lies in memory, so others' payloads need no copy of it to come to: they are added where
// they were received, and leave from there. A frame that is passed on is another one's, and stays as it came.
TEST(Program, AddsOntoWhatCameWherePayloadsAreTheValues) {
  for (const std::string_view strategy : {"server", "ring"})
    for (int world = 2; world <= 5; ++world)
      for (Rank me = 0; me < world; ++me) {
        const std::size_t n = 10'000;
        const Program p = compile(plan_of(std::span(&n, 1), strategy), {me, world}, {});
        SCOPED_TRACE(strategy);
        EXPECT_EQ(count(p, StepKind::kOwn), 0U);
        std::vector<int> writers(p.slots.size());
        for (const Step& s : p.steps) {
          if (s.kind == StepKind::kRecv || (s.kind == StepKind::kEncode && s.direct))
            ++writers[static_cast<std::size_t>(s.slot)];
          if (s.kind != StepKind::kMerge) continue;
          EXPECT_TRUE(s.onto);
          EXPECT_EQ(s.slot, p.indices[s.frames.first]);
        }
        EXPECT_TRUE(std::all_of(writers.begin(), writers.end(), [](int w) { return w == 1; }));
      }
  const std::size_t n = 10'000;
  const Plan plan = make_plan(
      std::vector<PlanTensor>{{.key = "t", .n = n}},
      Choices::of({.spec = *parse_spec("bf16"), .strategy = find_strategy("ring"), .min_values = 0}));
  EXPECT_EQ(count(compile(plan, {0, 4}, {}), StepKind::kOwn), 3U);
}

// Memory is of what is under way: a bucket of a hundred parts more needs no more.
TEST(Program, PartsThatAreNeverUnderWayTogetherShareMemory) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  const auto arena = [](std::string_view codec, std::string_view strategy, std::size_t parts) {
    const PlanTensor bucket[] = {{.key = "t", .n = parts * kPart}};
    const Plan plan = make_plan(bucket, Choices::of({.spec = *parse_spec(codec),
                                                     .strategy = find_strategy(strategy),
                                                     .min_values = 0,
                                                     .part_values = kPart,
                                                     .world = 4}));
    EXPECT_EQ(plan.parts.size(), parts);
    return compile(plan, {1, 4}, {}, {}, nullptr, std::vector<bool>(parts, true));
  };
  for (const std::string_view strategy : {"server", "gather", "ring"})
    for (const std::string_view codec : {"fp32", "fp8", "topk:ratio=0.01"}) {
      const Program few = arena(codec, strategy, 2), many = arena(codec, strategy, 200);
      const std::size_t each = few.arena_bytes / 2;
      const std::size_t window = std::max(least_window({1, 4}), 3 * (each + 4 * kPart)) + each + 4 * kPart;
      EXPECT_LE(many.arena_bytes + 4 * many.staged_values, window) << codec << " by " << strategy;
      if (codec == "fp32") {
        EXPECT_LT(many.arena_bytes * 4, each * 200) << "the window is what counts";
      }
    }
}

// A round's first steps: an encode per tensor.
std::size_t takes(std::vector<std::size_t> sizes, std::size_t room, int lanes, std::size_t skip = 0) {
  std::vector<TensorLayout> layout;
  std::size_t first = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    layout.push_back({std::to_string(k), sizes[k], DType::kF32, first, k, 0});
    first += sizes[k];
  }
  Queue queue;
  Job& job = queue.add(
      std::make_unique<Unit>(Member{}, layout, plan_of(sizes, "gather"), std::span<const double>{}), {});
  queue.begin(job, {});
  queue.run(job);
  std::vector<Task> out(room);
  for (; skip > 0; --skip) queue.take(std::span(out).first(1), 1);
  const std::size_t count = queue.take(out, lanes);
  for (std::size_t k = 0; k < count; ++k) EXPECT_EQ(out[k].what().kind, StepKind::kEncode);
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
