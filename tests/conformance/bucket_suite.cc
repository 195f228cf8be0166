// SPDX-License-Identifier: Apache-2.0
// session.h, "alone": the result of a tensor does not depend on its bucket, nor on its position there. Frameworks
// regroup buckets during training, and a resumed job starts with other groups.
#include <gtest/gtest.h>

#include "support/law_cases.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::Combination;
using testing::Data;
using testing::gradients;
using testing::key_of;
using testing::Ranks;
using testing::same_bits;
using testing::text;
using testing::Values;

// On both sides of the default min_values, and of the size at which a group of small tensors changes its strategy.
constexpr std::size_t kTensors[] = {5, 200, 1000, 3001, 4096, 9000};
using Grouping = std::vector<std::vector<std::size_t>>;  // buckets of places in kTensors

const Grouping kApart = {{0}, {1}, {2}, {3}, {4}, {5}};
const Grouping kTogether = {{0, 1, 2, 3, 4, 5}};
const Grouping kRegrouped = {{5, 3}, {2, 0, 4}, {1}};

// Gradients of magnitudes far enough apart for every order of a sum to round differently.
Values uneven(Rank rank, int round) {
  Values all = gradients(kTensors, Data::kGaussian, rank, round);
  float powers[13];
  for (int k = 0; k < 13; ++k) powers[k] = std::pow(3.0F, static_cast<float>(k - 6));
  for (std::vector<float>& v : all)
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] *= powers[(7 * i + 5 * static_cast<std::size_t>(rank)) % 13];
  return all;
}

// Rounds of all tensors, one grouping per round; returns the results of all rounds and the final residuals.
std::vector<Values> run(const Combination& c, const std::vector<Grouping>& rounds) {
  Ranks ranks(testing::open_world(c.transport, c.world), {.strategy = std::string(c.strategy->name),
                                                          .hosts = c.hosts,
                                                          .spec = c.law.spec,
                                                          .rules = c.law.rules});
  std::vector<Values> all(static_cast<std::size_t>(c.world));
  ranks.each([&](Rank r) {
    Values& mine = all[static_cast<std::size_t>(r)];
    for (std::size_t round = 0; round < rounds.size(); ++round) {
      Values grad = uneven(r, static_cast<int>(round));
      std::vector<Ticket> tickets;
      std::vector<std::string> keys;
      for (const std::size_t n : kTensors) keys.push_back(key_of(n));
      for (const std::vector<std::size_t>& bucket : rounds[round]) {
        std::vector<Tensor> tensors;
        for (const std::size_t k : bucket)
          tensors.push_back({.key = keys[k], .data = grad[k].data(), .n = grad[k].size()});
        const Result<Ticket> ticket = ranks[r].sync(tensors);
        ASSERT_TRUE(ticket.ok()) << text(ticket.status());
        tickets.push_back(*ticket);
      }
      for (const Ticket t : tickets) ASSERT_TRUE(ranks[r].wait(t).ok());
      const Status committed = ranks[r].commit();
      ASSERT_TRUE(committed.ok()) << text(committed);
      for (std::vector<float>& v : grad) mine.push_back(std::move(v));
    }
    for (std::vector<float>& v : testing::residuals(ranks[r], kTensors)) mine.push_back(std::move(v));
  });
  return all;
}

class BucketSuite : public ::testing::TestWithParam<Combination> {};

TEST_P(BucketSuite, ResultsDoNotDependOnTheBucket) {
  const std::vector<Values> apart = run(GetParam(), {kApart, kApart, kApart});
  for (const auto& rounds : {std::vector<Grouping>{kTogether, kTogether, kTogether},
                             std::vector<Grouping>{kTogether, kRegrouped, kApart}}) {
    const std::vector<Values> grouped = run(GetParam(), rounds);
    for (std::size_t r = 0; r < apart.size(); ++r)
      for (std::size_t k = 0; k < apart[r].size(); ++k)
        ASSERT_TRUE(same_bits({apart[r][k]}, {grouped[r][k]}))
            << "rank " << r << ", " << (k / std::size(kTensors) < 3 ? "result of round " : "residual, ")
            << k / std::size(kTensors) << ", tensor of " << kTensors[k % std::size(kTensors)] << " values";
  }
}

// Worlds of three and more ranks: with two the order of a sum has no effect.
std::vector<Combination> several_ranks() {
  std::vector<Combination> all;
  // Codec x strategy, alternating between two worlds; both with TITHE_TEST_FULL=1.
  bool three = false;
  for (Combination& c : testing::all_combinations()) {
    if (c.between_processes || (c.world != 3 && c.world != 5)) continue;
    if (c.world == 3) three = !three;
    if (harness::full_products() || three == (c.world == 3)) all.push_back(std::move(c));
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Loop, BucketSuite, ::testing::ValuesIn(several_ranks()), testing::label);

// With momentum a group of small tensors is clipped, and each of its tensors by its own norm.
TEST(BucketSuite, ClippingDoesNotDependOnTheBucket) {
  const Combination c{{"clipped", *parse_spec("dgc:ratio=0.01,feedback=momentum,clip=0.5")},
                      find_strategy("gather"),
                      "loop",
                      3};
  const std::vector<Values> apart = run(c, {kApart, kApart});
  const std::vector<Values> together = run(c, {kTogether, kRegrouped});
  for (std::size_t r = 0; r < apart.size(); ++r)
    EXPECT_TRUE(same_bits(apart[r], together[r])) << "rank " << r;
}

// A sum does not depend on the adding rank: strategies that add on one rank add in the order of ranks.
TEST(BucketSuite, SumsAreInRankOrderForEveryOwner) {
  for (const int world : {3, 5, 8}) {
    const testing::LawCase fp32{"fp32", *parse_spec("fp32")};
    const std::vector<Values> gathered = run({fp32, find_strategy("gather"), "loop", world}, {kApart});
    for (const char* strategy : {"server", "aggregator"}) {
      const std::vector<Values> summed = run({fp32, find_strategy(strategy), "loop", world}, {kApart});
      EXPECT_TRUE(same_bits(gathered[0], summed[0])) << strategy << ", " << world << " ranks";
    }
  }
}

}  // namespace
}  // namespace tithe
