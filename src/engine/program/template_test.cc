// SPDX-License-Identifier: Apache-2.0
#include "engine/program/template.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/program/laws.h"
#include "engine/program/makers.h"
#include "tithe/seam/catalogue.h"

namespace tithe::engine {
namespace {

Plan plan_of(std::string_view codec, const Strategy& strategy, std::size_t parts, std::size_t part) {
  const PlanTensor bucket[] = {{.key = "t", .n = parts * part, .row = 10}};
  return make_plan(
      bucket,
      Choices::of({.spec = *parse_spec(codec), .strategy = &strategy, .min_values = 0, .part_values = part}));
}

// True if the graph of some rank merges frames.
bool any_merge(const Strategy& strategy, Place at) { return Makers(strategy, at).any_merge(); }

TEST(Template, PartsThatDifferOnlyInSizeShareATemplate) {
  const Strategy& server = *find_strategy("server");
  const Place at{1, 4};
  const Graph graph = server.draw(at);
  Templates templates;
  for (const std::size_t n : {std::size_t{100'000}, std::size_t{100'001}, std::size_t{4'000'000}})
    compile_unverified(plan_of("fp32", server, 3, n), at, graph, true, templates);
  EXPECT_EQ(templates.size(), 1U);
  compile_unverified(plan_of("fp32", server, 1, 100), at, graph, true, templates);
  EXPECT_EQ(templates.size(), 2U) << "the reader of a small frame checks it";
  compile_unverified(plan_of("onebit", server, 1, 100'000), at, graph, true, templates);
  EXPECT_EQ(templates.size(), 3U) << "another law needs another template";
}

// The makers decide only which ranks are blamed; the steps are the same without them.
TEST(Template, StepsDoNotDependOnMakers) {
  for (const char* codec : {"fp32", "onebit", "topk", "scalecom", "powersgd:cols=10"})
    for (const Strategy* strategy : all_strategies()) {
      const Spec spec = *parse_spec(codec);
      if (!choose_laws(spec, *strategy).ok()) continue;
      for (Rank me = 0; me < 4; ++me) {
        SCOPED_TRACE(std::string(codec) + " by " + std::string(strategy->name));
        const Place at{me, 4};
        const Plan plan = plan_of(codec, *strategy, 2, 600);
        const Program full = compile(plan, at, {});
        Templates templates;
        const Program bare =
            compile_unverified(plan, at, strategy->draw(at), any_merge(*strategy, at), templates);
        ASSERT_EQ(full.steps.size(), bare.steps.size());
        ASSERT_EQ(full.slots.size(), bare.slots.size());
        for (std::size_t k = 0; k < full.slots.size(); ++k)
          EXPECT_EQ(full.slots[k].bytes, bare.slots[k].bytes);
        const auto list = [](const Program& p, Range r) {
          return std::vector<int>(p.indices.begin() + r.first, p.indices.begin() + r.first + r.count);
        };
        for (std::size_t k = 0; k < full.steps.size(); ++k) {
          const Step &a = full.steps[k], &b = bare.steps[k];
          EXPECT_EQ(a.kind, b.kind);
          EXPECT_EQ(a.waits, b.waits);
          EXPECT_EQ(a.slot, b.slot);
          EXPECT_EQ(a.weight, b.weight);
          EXPECT_EQ(a.place, b.place);
          EXPECT_EQ(list(full, a.next), list(bare, b.next));
          EXPECT_EQ(list(full, a.frames), list(bare, b.frames));
          EXPECT_EQ(b.makers.count, 0U);
          const bool made = a.kind == StepKind::kEncode || a.kind == StepKind::kCheck;
          EXPECT_GE(a.makers.count, made ? 1U : 0U);
        }
      }
    }
}

}  // namespace
}  // namespace tithe::engine
