// SPDX-License-Identifier: Apache-2.0
// The reduced products that `make test` runs contain every pair, and `make test-full` contains everything.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "conformance/codec_case.h"
#include "support/law_cases.h"
#include "support/pairs.h"

namespace tithe {
namespace {

using harness::Row;

TEST(Pairs, EveryPairOfEntriesOccurs) {
  const std::vector<std::size_t> several[] = {{1, 1, 1},    {2, 2, 2},      {3, 4, 5},          {41, 4, 9},
                                              {5, 3, 3, 5}, {9, 41, 4, 12}, {2, 7, 2, 7, 2, 3}, {4, 4}};
  for (const auto& sizes : several) {
    const std::vector<Row> rows = harness::cover_pairs(sizes);
    EXPECT_EQ(rows, harness::cover_pairs(sizes));
    EXPECT_LE(rows.size(), harness::product(sizes).size());
    for (std::size_t f = 0; f < sizes.size(); ++f)
      for (std::size_t g = f + 1; g < sizes.size(); ++g) {
        std::set<std::pair<std::size_t, std::size_t>> met;
        for (const Row& row : rows) {
          ASSERT_EQ(row.size(), sizes.size());
          ASSERT_LT(row[f], sizes[f]);
          met.emplace(row[f], row[g]);
        }
        EXPECT_EQ(met.size(), sizes[f] * sizes[g]) << "lists " << f << " and " << g;
      }
  }
}

// The product of three lists costs little more than that of the two longest.
TEST(Pairs, RowsAreFew) {
  EXPECT_EQ(harness::cover_pairs({41, 4, 9}).size(), 41U * 9);
  EXPECT_LE(harness::cover_pairs({5, 3, 3, 5}).size(), 30U);
}

TEST(Pairs, IndicesAreWithinTheirLists) {
  EXPECT_EQ(harness::product({2, 1, 3}).size(), 6U);
  EXPECT_EQ(harness::product({2, 1, 3})[4], (Row{1, 0, 1}));
  EXPECT_TRUE(harness::cover_pairs({3, 0, 2}).empty());
}

using Pair = std::pair<std::string, std::string>;

std::string place_of(const testing::Combination& c) { return c.transport + std::to_string(c.world); }

// The law cases contain every pair of codec, strategy, world and transport, and every pair of strategy, world and
// transport on which the strategy can run.
TEST(Pairs, LawCasesContainEveryPair) {
  const auto pairs_of = [](const std::vector<testing::Combination>& all) {
    std::set<Pair> met;
    for (const testing::Combination& c : all) {
      const std::string law = "law " + c.law.label, strategy = "strategy " + std::string(c.strategy->name);
      met.emplace(law, strategy);
      met.emplace(law, place_of(c));
      met.emplace(strategy, place_of(c));
    }
    return met;
  };
  const auto all = testing::all_combinations();
  EXPECT_EQ(pairs_of(testing::combinations()), pairs_of(all));
  EXPECT_EQ(all.size(), testing::law_cases().size() * all_strategies().size() * testing::sites().size());
  if (harness::full_products()) {
    EXPECT_EQ(testing::combinations().size(), all.size());
  }
}

// The codec cases contain every codec in each of its settings with every size, every path with every size, all small
// sizes on every path, and all but the largest on the default dispatch.
TEST(Pairs, CodecCasesContainEverySizeAndPath) {
  using conformance::CodecCase;
  const auto config = [](const CodecCase& c) { return std::string(c.codec->name) + c.settings_name; };
  const auto path = [](const CodecCase& c) {
    return std::string(c.impl->name) + harness::target_name(c.target);
  };
  const auto pairs_of = [&](const std::vector<CodecCase>& all) {
    std::set<Pair> met;
    for (const CodecCase& c : all) {
      met.emplace("codec " + config(c), std::to_string(c.n));
      met.emplace("codec " + config(c), "path " + path(c));
      met.emplace("path " + path(c), std::to_string(c.n));
      if (c.n <= conformance::kSmall) met.emplace(config(c) + path(c), std::to_string(c.n));
      const bool largest = c.n > conformance::kLargestOfAll && !c.settings_name.empty();
      if (c.target == 0 && !largest) met.emplace(config(c) + " by what dispatch takes", std::to_string(c.n));
    }
    return met;
  };
  EXPECT_EQ(pairs_of(conformance::codec_cases()), pairs_of(conformance::all_codec_cases()));
  if (harness::full_products()) {
    EXPECT_EQ(conformance::codec_cases().size(), conformance::all_codec_cases().size());
  }
}

}  // namespace
}  // namespace tithe
