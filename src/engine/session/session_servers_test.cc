// SPDX-License-Identifier: Apache-2.0
// Ranks without gradients, which sum for the others.
#include <gtest/gtest.h>

#include <limits>

#include "support/law_cases.h"
#include "support/ledger.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::at;
using testing::Data;
using testing::gradients;
using testing::has;
using testing::imbalance;
using testing::Ranks;
using testing::residuals;
using testing::same_bits;
using testing::synchronise;
using testing::text;
using testing::Values;

constexpr std::size_t kSizes[] = {5, 300, 4097, 30'000};
constexpr int kWorld = 5;

SessionOptions with(const Spec& spec, int servers) {
  return {.servers = servers, .lanes = 0, .average = false, .min_values = 16, .seed = 3, .spec = spec};
}

// The values in a server's tensors are ignored: they may be NaN.
Values zeros() {
  Values out;
  for (const std::size_t n : kSizes) out.emplace_back(n);
  return out;
}
Values rubbish() {
  Values out = zeros();
  for (auto& v : out) std::fill(v.begin(), v.end(), std::numeric_limits<float>::quiet_NaN());
  return out;
}

TEST(SessionServers, LedgerAndIdentityHoldForEveryCodec) {
  for (const int servers : {1, 2, 4})
    for (const Codec* codec : all_codecs()) {
      if (codec->phases[0].name == "votes") continue;
      SCOPED_TRACE(std::string(codec->name) + ", servers=" + std::to_string(servers));
      Ranks ranks(open_loop(kWorld), with(*parse_spec(codec->name), servers));
      std::vector<Values> before(kWorld), grads(kWorld), result(kWorld), after(kWorld);
      for (Rank r = 0; r < kWorld; ++r) before[at(r)] = residuals(ranks[r], kSizes);
      for (int round = 0; round < 3; ++round) {
        ranks.each([&](Rank r) {
          const bool serves = r >= kWorld - servers;
          grads[at(r)] = serves ? zeros() : gradients(kSizes, Data::kGaussian, r, round);
          result[at(r)] = serves ? rubbish() : grads[at(r)];
          const Status s = synchronise(ranks[r], kSizes, result[at(r)]);
          ASSERT_TRUE(s.ok()) << text(s);
          after[at(r)] = residuals(ranks[r], kSizes);
        });
        for (Rank r = 1; r < kWorld; ++r) ASSERT_TRUE(same_bits(result[0], result[at(r)])) << "rank " << r;
        const testing::Imbalance off = imbalance(grads, before, result[0], after, codec->traits, false);
        ASSERT_LE(off.times, 1) << off << ", round " << round;
        before = after;
      }
    }
}

TEST(SessionServers, TheMeanIsOverTheWorkersOnly) {
  SessionOptions o = with(*parse_spec("fp32"), 2);
  o.average = true;
  Ranks ranks(open_loop(kWorld), o);
  ranks.each([&](Rank r) {
    Values v = zeros();
    for (auto& t : v) std::fill(t.begin(), t.end(), static_cast<float>(r));  // workers: 0, 1, 2
    const Status s = synchronise(ranks[r], kSizes, v);
    EXPECT_TRUE(s.ok()) << text(s);
    for (const auto& t : v)
      for (const float x : t) ASSERT_EQ(x, 1.0F);
  });
}

// All servers drop such a round, also those of other chunks, and keep their residuals.
TEST(SessionServers, AllServersDropANonFiniteRound) {
  Ranks ranks(open_loop(kWorld), with(*parse_spec("onebit"), 2));
  ranks.each([&](Rank r) {
    Values kept;
    for (int round = 0; round < 3; ++round) {
      Values v = gradients(kSizes, Data::kGaussian, r, round);
      if (round == 1 && r == 0) v[3][3] = std::numeric_limits<float>::infinity();
      if (round == 1) kept = residuals(ranks[r], kSizes);
      const Status s = synchronise(ranks[r], kSizes, v);
      EXPECT_TRUE(s.ok()) << text(s);
      EXPECT_EQ(ranks[r].last_round_dropped(), round == 1) << "rank " << r;
      if (round == 1) {
        EXPECT_TRUE(same_bits(kept, residuals(ranks[r], kSizes))) << "rank " << r;
      }
    }
  });
}

TEST(SessionServers, ADifferingCountIsNamedAndThePlanContainsIt) {
  Ranks ranks(open_loop(3), with(*parse_spec("onebit"), 1), [](Rank r, SessionOptions& o) {
    if (r == 1) o.servers = 2;
  });
  ranks.each([&](Rank r) {
    Values v = zeros();
    const Status s = synchronise(ranks[r], kSizes, v);
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 1) << text(s);
    EXPECT_TRUE(has(s.what(), "auto with servers=2 instead of auto with servers=1")) << text(s);
  });
}

TEST(SessionServers, RefusesUnsupportedOptions) {
  const auto refused = [](const SessionOptions& o) {
    return Session::open(std::move(open_loop(3)[0]), o).status();
  };
  for (const int servers : {-1, 3, 4})
    EXPECT_TRUE(has(refused(with(*parse_spec("fp32"), servers)).what(), "must not be a server")) << servers;
  SessionOptions ring = with(*parse_spec("fp32"), 1);
  ring.strategy = "ring";
  EXPECT_TRUE(has(refused(ring).what(), "use strategy server or auto, or set servers=0"));
  EXPECT_TRUE(has(refused(with(*parse_spec("sign_majority"), 1)).what(), "counts every rank as a vote"));
}

}  // namespace
}  // namespace tithe
