// SPDX-License-Identifier: Apache-2.0
// feedback=decay discards a share of the residual and books it: including the booked amount, the ledger of a round
// balances.
#include <algorithm>
#include <cmath>

#include "support/law_cases.h"

namespace tithe::testing {
namespace {

constexpr std::size_t kDecaySizes[] = {0, 7, 33, 4097};
constexpr int kRounds = 3;

SessionOptions options_of(const Combination& c, Feedback kind, double beta) {
  Spec spec = c.law.spec;
  spec.feedback.kind = kind;
  spec.feedback.beta = beta;
  return {.strategy = std::string(c.strategy->name),
          .hosts = c.hosts,
          .lanes = 0,
          .average = false,
          .min_values = 0,
          .seed = 7,
          .spec = spec};
}

// The sums of one rank over all rounds.
struct Account {
  double put_in = 0, came_out = 0, forgotten = 0, magnitude = 0;
  bool has_unsent = false;  // the last residual is not 0
  std::vector<Values> results;
  void add(double& to, const Values& values) {
    for (const std::vector<float>& v : values)
      for (const float x : v) {
        to += double{x};
        magnitude += std::fabs(double{x});
      }
  }
};

std::vector<Account> run(const Combination& c, Feedback kind, double beta) {
  Ranks all(open_loop(c.world), options_of(c, kind, beta));
  std::vector<Account> accounts(at(c.world));
  all.each([&](Rank r) {
    Account& account = accounts[at(r)];
    for (int round = 0; round < kRounds; ++round) {
      Values values = gradients(kDecaySizes, Data::kGaussian, r, round);
      account.add(account.put_in, values);
      const Status s = synchronise(all[r], kDecaySizes, values);
      ASSERT_TRUE(s.ok()) << text(s);
      if (r == 0) account.add(account.came_out, values);  // the same on all ranks
      account.results.push_back(std::move(values));
    }
    const Values left = residuals(all[r], kDecaySizes);
    account.add(account.came_out, left);
    for (const std::vector<float>& v : left)
      account.has_unsent = account.has_unsent || std::ranges::any_of(v, [](float x) { return x != 0; });
    account.forgotten = all[r].stats().sum_decayed;
  });
  return accounts;
}

class DecaySuite : public ::testing::TestWithParam<Combination> {};

TEST_P(DecaySuite, DecayedResidualBalancesTheLedger) {
  const Combination& c = GetParam();
  if (c.between_processes) GTEST_SKIP() << "the same frames";
  if (c.law.spec.codec->traits.lossless || !c.law.rules.empty())
    GTEST_SKIP() << "nothing to discard, or no decay";
  double off = 0, forgotten = 0, magnitude = 0;
  bool has_unsent = false;
  for (const Account& account : run(c, Feedback::kDecay, 0.75)) {
    off += account.put_in - account.came_out - account.forgotten;
    forgotten += std::fabs(account.forgotten);
    magnitude += account.magnitude;
    has_unsent = has_unsent || account.has_unsent;
  }
  EXPECT_LE(std::fabs(off), 1e-6 * magnitude);
  EXPECT_EQ(forgotten > 0, has_unsent);
}

TEST_P(DecaySuite, BetaOfOneKeepsTheResidual) {
  const Combination& c = GetParam();
  if (c.between_processes) GTEST_SKIP() << "the same frames";
  if (c.law.spec.codec->traits.lossless || !c.law.rules.empty())
    GTEST_SKIP() << "nothing to discard, or no decay";
  const std::vector<Account> decay = run(c, Feedback::kDecay, 1), plain = run(c, Feedback::kResidual, 1);
  for (std::size_t r = 0; r < decay.size(); ++r) {
    EXPECT_EQ(decay[r].forgotten, 0);
    for (int round = 0; round < kRounds; ++round)
      EXPECT_EQ(first_difference(decay[r].results[at(round)], plain[r].results[at(round)]), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, DecaySuite, ::testing::ValuesIn(combinations()), label);

}  // namespace
}  // namespace tithe::testing
