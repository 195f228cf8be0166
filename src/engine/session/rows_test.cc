// SPDX-License-Identifier: Apache-2.0
// Tensors as matrices: the effect of Tensor::row on plans, programs and powersgd.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/program/program.h"
#include "support/ranks.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::Ranks;
using testing::text;

TEST(Rows, CutsFallBetweenRows) {
  for (const std::size_t n : {1000U, 1003U})
    for (const std::size_t pieces : {1U, 3U, 7U, 16U}) {
      std::size_t before = 0;
      for (std::size_t k = 0; k <= pieces; ++k) {
        const std::size_t at = cut_at(n, 20, k, pieces);
        EXPECT_TRUE(at % 20 == 0 || k == pieces) << at;
        EXPECT_GE(at, before);
        before = at;
      }
      EXPECT_EQ(cut_at(n, 20, 0, pieces), 0U);
      EXPECT_EQ(before, n);
    }
  EXPECT_EQ(cut_at(1000, 0, 1, 3), 333U) << "the row length is unknown";
  EXPECT_EQ(cut_at(1000, 1000, 1, 3), 333U) << "one row: a vector";
}

TEST(Rows, ThePlanPassesRowsToCodecsThatUseThem) {
  const PlanTensor bucket[] = {{"a", 6000, 60}, {"b", 5000, 5000}, {"c", 4800, 0}};
  const auto plan = [&](const char* codec) {
    return make_plan(bucket, Choices::of({.spec = *parse_spec(codec),
                                          .strategy = find_strategy("ring"),
                                          .min_values = 0,
                                          .part_values = 2500}));
  };
  std::vector<std::string> specs;
  for (const Part& p : plan("powersgd:rank=2").parts) specs.push_back(to_string(p.spec));
  const std::vector<std::string> want = {"powersgd:rank=2,cols=60",
                                         "powersgd:rank=2,cols=60",
                                         "powersgd:rank=2,cols=60",
                                         "powersgd:rank=2,cols=5000",
                                         "powersgd:rank=2,cols=5000",
                                         "powersgd:rank=2",
                                         "powersgd:rank=2"};
  EXPECT_EQ(specs, want);
  EXPECT_EQ(plan("powersgd").parts[1].first, 1980U) << "33 of 100 rows";
  for (const Part& p : plan("powersgd:cols=7").parts)
    EXPECT_EQ(cols_of(p.spec), 7U) << "a configured cols overrides the row length";
  for (const Part& p : plan("topk").parts) EXPECT_EQ(to_string(p.spec), "topk");
  EXPECT_EQ(plan("topk").parts[1].first, 2000U);

  const engine::Program program = engine::compile(plan("powersgd"), {0, 4}, {});
  EXPECT_EQ(program.parts[0].starts, (std::vector<std::size_t>{0, 8 * 60, 16 * 60, 24 * 60, 1980}));
}

// A sum of outer products, one per rank: a matrix of low rank if its row length is known, of high rank with another
// row length.
TEST(Rows, PowerSgdIsExactForALowRankTensorOfKnownShape) {
  constexpr std::size_t kRows = 60, kCols = 37;
  for (const Strategy* strategy : all_strategies())
    for (const bool has_rows : {true, false}) {
      Ranks ranks(open_loop(3), {.codec = "powersgd:rank=3",
                                 .strategy = std::string(strategy->name),
                                 .lanes = 0,
                                 .average = false,
                                 .min_values = 0});
      const auto outer = [](int r, std::size_t i) {
        return std::sin(static_cast<float>((r + 1) * static_cast<int>(i / kCols * 5 + 1))) *
               std::cos(static_cast<float>((r + 2) * static_cast<int>(i % kCols * 3 + 2)));
      };
      ranks.each([&](Rank r) {
        std::vector<float> v(kRows * kCols);
        for (std::size_t i = 0; i < v.size(); ++i) v[i] = outer(r, i);
        const Tensor t{.key = "w", .data = v.data(), .n = v.size(), .row = has_rows ? kCols : 0};
        const Result<Ticket> ticket = ranks[r].sync({&t, 1});
        ASSERT_TRUE(ticket.ok()) << text(ticket.status());
        ASSERT_TRUE(ranks[r].wait(*ticket).ok());
        ASSERT_TRUE(ranks[r].commit().ok());
        double error = 0, energy = 0;
        for (std::size_t i = 0; i < v.size(); ++i) {
          const double want = double{outer(0, i)} + outer(1, i) + outer(2, i);
          error += (v[i] - want) * (v[i] - want);
          energy += want * want;
        }
        if (has_rows)
          EXPECT_LT(error / energy, 1e-9) << strategy->name;
        else
          EXPECT_GT(error / energy, 0.1) << strategy->name;
      });
    }
}

TEST(Rows, MustFitTheTensorAndBeTheSameOnAllRanks) {
  Ranks ranks(open_loop(2), {.codec = "powersgd", .lanes = 0, .min_values = 0});
  ranks.each([&](Rank r) {
    std::vector<float> v(120);
    Tensor t{.key = "w", .data = v.data(), .n = v.size(), .row = 50};
    EXPECT_EQ(ranks[r].sync({&t, 1}).status().code(), Code::kInvalid);
    t.row = r == 0 ? 10 : 12;
    const Result<Ticket> ticket = ranks[r].sync({&t, 1});
    const Status s = ticket.ok() ? ranks[r].wait(*ticket) : ticket.status();
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
  });
}

}  // namespace
}  // namespace tithe
