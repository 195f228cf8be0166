// SPDX-License-Identifier: Apache-2.0
// Seeded jobs with late ranks, on the network's clock: README.md in this folder.
//
//   identity  all ranks get the same bits in every round, including ranks that did not take part
//   ledger    over all rounds, gradients == results + residuals
//   bounded   a rank is late by at most the permitted number of rounds; a round leaves out at most the permitted number
//             of ranks
//   returns   every world ends, and all ranks do all rounds; if a rank is lost, all others name it
//   named     a permanently late rank is named on all ranks, with its cost
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "chaos/random.h"
#include "support/ledger.h"

namespace tithe::chaos {
namespace {

using std::chrono::milliseconds;
using testing::Values;

constexpr std::uint64_t kLateSeeds = 8;

struct LateJob {
  Scenario scenario;
  std::uint32_t without = 1, level = 0;
  int ranks = 1;
  std::vector<std::vector<milliseconds>> away;  // by rank and round
  bool may_stand_in = true;

  SessionOptions options() const {
    SessionOptions o = scenario.options(scenario.lanes);
    if (may_stand_in)
      o.stragglers = fmt::format("share=0.25,without={},ranks={}{}", without, ranks,
                                 level > 0 ? fmt::format(",level={}", level) : "");
    return o;
  }
};

LateJob draw_late_job(std::uint64_t seed) {
  Random random(mix64(seed ^ 0x6c6174656e657373ULL));
  LateJob job;
  Scenario& p = job.scenario;
  p.seed = seed;
  p.world = static_cast<int>(random.any({2, 2, 3, 3, 4, 5}));
  p.lanes = random.any({1, 1, 2});
  p.rounds = 6 + static_cast<int>(random.of(6));
  p.average = random.one_in(4);
  job.without = random.any<std::uint32_t>({1, 1, 2, 4});
  job.ranks = 1 + static_cast<int>(random.of(static_cast<std::uint64_t>(p.world - 1)));
  job.level = random.any<std::uint32_t>({0, 0, 4});
  static const std::vector<testing::LawCase> cases = testing::law_cases();
  const std::size_t tensors = 1 + random.of(3);
  for (std::size_t k = 0; k < tensors; ++k)
    p.tensors.push_back({fmt::format("t{}", k), random.any<std::size_t>({1, 9, 64, 257, 600}), 0});
  p.buckets.assign(static_cast<std::size_t>(p.rounds), group(random, tensors));
  p.min_values = random.any<std::size_t>({0, 0, 16});
  p.part_values = random.any<std::size_t>({1U << 22, 100});
  p.data = random.one_in(2) ? testing::Data::kDyadic : testing::Data::kGaussian;
  p.conditions = {.seed = random.word(),
                  .turns = !random.one_in(5),
                  .max_latency = milliseconds(random.any({0, 1, 20})),
                  .eager_bytes = random.any<std::size_t>({0, 100, 1U << 30})};
  do {
    p.law = cases[random.of(cases.size())];
    p.strategy = std::string(all_strategies()[random.of(all_strategies().size())]->name);
  } while (!Session::open(std::move(open_loop(1)[0]), job.options()).ok());
  // None with probability 1/2.
  const auto slow = static_cast<Rank>(random.of(static_cast<std::uint64_t>(2 * p.world)));
  for (Rank r = 0; r < p.world; ++r) {
    auto& mine = job.away.emplace_back();
    for (int k = 0; k < p.rounds; ++k)
      mine.emplace_back(50 + random.of(5) + (r == slow ? 60 : 0) +
                        (random.one_in(6) ? 50 + random.of(400) : 0));
  }
  if (random.one_in(4)) {
    p.fault = {.kind = FaultKind::kKill,
               .who = static_cast<Rank>(random.of(static_cast<std::uint64_t>(p.world)))};
    p.fault.point = Point::kSend;
    p.fault.count = 1 + random.of(150);
  }
  return job;
}

struct LateRank {
  std::vector<Values> results;  // by round
  std::uint64_t max_behind = 0;
  Values unsent;
  Status end;
  SessionStats stats;
  std::vector<std::string> messages;
};

// Each rank's computation has its own clock: process world + rank of the network, which only sleeps.
std::vector<LateRank> play(const LateJob& job, bool& struck, bool& hung) {
  const Scenario& p = job.scenario;
  const auto world = static_cast<std::size_t>(p.world);
  Network net(2 * p.world, p.conditions, {p.fault}, false, 100 * kTimeout);
  std::vector<int> processes(world);
  std::iota(processes.begin(), processes.end(), 0);
  std::vector<LateRank> ranks(world);
  std::vector<std::atomic<bool>> over(world);
  net.run([&](int process) {
    if (process >= p.world) return over[testing::at(process - p.world)].wait(false);
    LateRank& mine = ranks[testing::at(process)];
    const auto round = [&](Session& session, int k) -> Status {
      net.sleep(p.world + process, job.away[testing::at(process)][testing::at(k)]);
      Values values;
      for (std::size_t t = 0; t < p.tensors.size(); ++t) values.push_back(p.gradient(t, process, k));
      std::vector<Ticket> tickets;
      for (const auto& bucket : p.buckets[testing::at(k)]) {
        std::vector<Tensor> tensors;
        for (const std::size_t t : bucket)
          tensors.push_back({.key = p.tensors[t].key, .data = values[t].data(), .n = values[t].size()});
        const Result<Ticket> ticket = session.sync(tensors);
        if (!ticket.ok()) return ticket.status();
        tickets.push_back(*ticket);
      }
      mine.max_behind = std::max(mine.max_behind, session.stats().rounds_behind);
      for (const Ticket ticket : tickets) TITHE_TRY(session.wait(ticket));
      TITHE_TRY(session.commit());
      mine.results.push_back(std::move(values));
      return {};
    };
    {
      auto opened = Session::open(net.open(0, processes, process), job.options());
      mine.end = opened.status();
      for (int k = 0; k < p.rounds && mine.end.ok(); ++k) mine.end = round(**opened, k);
      if (opened.ok()) {
        for (const Shape& t : p.tensors) {
          mine.unsent.emplace_back(t.n);
          if (!(*opened)->residual(t.key, mine.unsent.back()).ok())
            std::ranges::fill(mine.unsent.back(), 0.0F);
        }
        mine.stats = (*opened)->stats();
        mine.messages = (*opened)->messages();
      }
    }
    over[testing::at(process)] = true;
    over[testing::at(process)].notify_all();
  });
  struck = net.struck();
  hung = net.hung();
  return ranks;
}

void judge(const LateJob& job, const std::vector<LateRank>& ranks, bool struck, bool hung) {
  const Scenario& p = job.scenario;
  EXPECT_FALSE(hung);
  std::size_t most = 0;
  for (const LateRank& r : ranks) most = std::max(most, r.results.size());
  for (std::size_t k = 0; k < most; ++k) {
    const Values* first = nullptr;
    for (const LateRank& r : ranks) {
      if (k >= r.results.size()) continue;
      if (first == nullptr) first = &r.results[k];
      EXPECT_TRUE(testing::same_bits(*first, r.results[k])) << "identity, round " << k;
    }
  }
  std::uint64_t missed = 0;
  for (const LateRank& r : ranks) {
    EXPECT_LE(r.max_behind, job.without);
    missed += r.stats.rounds_missed;
  }
  EXPECT_LE(missed, static_cast<std::uint64_t>(job.ranks * p.rounds));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!struck) {
      EXPECT_TRUE(ranks[r].end.ok()) << r << ": " << testing::text(ranks[r].end);
    }
    // A rank that has finished all rounds may leave: the others may not have reached the same round.
    if (struck && static_cast<Rank>(r) != p.fault.who && !ranks[r].end.ok()) {
      EXPECT_EQ(ranks[r].end.peer(), p.fault.who) << r << ": " << testing::text(ranks[r].end);
    }
  }
  if (struck || most == 0) return;
  std::vector<Values> grads, none, after;
  Values sums;
  Values zeros;
  for (const Shape& t : p.tensors) zeros.emplace_back(t.n);
  sums = zeros;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (int k = 0; k < p.rounds; ++k) {
      Values g;
      for (std::size_t t = 0; t < p.tensors.size(); ++t) g.push_back(p.gradient(t, static_cast<Rank>(r), k));
      grads.push_back(std::move(g));
      none.push_back(zeros);
      after.push_back(k == 0 ? ranks[r].unsent : zeros);
    }
  for (const Values& result : ranks[0].results)
    for (std::size_t t = 0; t < result.size(); ++t)
      for (std::size_t i = 0; i < result[t].size(); ++i)
        sums[t][i] += p.average ? result[t][i] * static_cast<float>(p.world) : result[t][i];
  const Traits traits = p.law.traits();
  const bool exact = traits.exact_ledger && p.data == testing::Data::kDyadic && !p.average;
  const testing::Imbalance off = testing::imbalance(grads, none, sums, after, traits, exact);
  EXPECT_LE(off.times, exact ? 0 : 1) << off;
}

std::uint64_t seed_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Returns the number of rounds without some rank.
std::uint64_t hold_late(std::uint64_t seed) {
  const LateJob job = draw_late_job(seed);
  SCOPED_TRACE(fmt::format(
      "TITHE_CHAOS_SEED={} build/tests/chaos_tests --gtest_filter=Stragglers.OneSeed: {} ranks, {}, "
      "{}, {} rounds, {}, fault {} of {}",
      seed, job.scenario.world, job.scenario.law.label, job.scenario.strategy, job.scenario.rounds,
      job.options().stragglers, name(job.scenario.fault.kind), job.scenario.fault.who));
  bool struck = false, hung = false;
  const std::vector<LateRank> ranks = play(job, struck, hung);
  judge(job, ranks, struck, hung);
  std::uint64_t missed = 0;
  for (const LateRank& r : ranks) missed += r.stats.rounds_missed;
  return missed;
}

TEST(Stragglers, RoundsContinueWithoutLateRanksAndWithoutLoss) {
  const std::uint64_t first = seed_from("TITHE_CHAOS_FIRST", 1),
                      seeds = seed_from("TITHE_CHAOS_SEEDS", kLateSeeds);
  std::uint64_t missed = 0;
  for (std::uint64_t s = 0; s < std::min(seeds, std::uint64_t{2000}); ++s) missed += hold_late(first + s);
  EXPECT_GT(missed, seeds / 2) << "rounds without some rank";
}

TEST(Stragglers, OneSeed) { hold_late(seed_from("TITHE_CHAOS_SEED", 1)); }

// Rank 2 takes 90 ms for a round, the others 50: on the network's clock, on which work takes no time.
TEST(Stragglers, AllRanksNameAPermanentlyLateRank) {
  LateJob job;
  job.may_stand_in = false;
  Scenario& p = job.scenario;
  p.seed = 1;
  p.world = 3;
  p.lanes = 1;
  p.rounds = 34;
  p.law = {"topk", *parse_spec("topk:ratio=0.1"), {}};
  p.strategy = "ring";
  p.tensors = {{"t", 600, 0}};
  p.buckets.assign(34, Buckets{{0}});
  p.part_values = 1U << 22;
  for (Rank r = 0; r < 3; ++r) job.away.emplace_back(34, milliseconds(r == 2 ? 90 : 50));
  bool struck = false, hung = false;
  const std::vector<LateRank> ranks = play(job, struck, hung);
  judge(job, ranks, struck, hung);
  for (const LateRank& r : ranks) {
    EXPECT_EQ(r.stats.late_rank, 2);
    EXPECT_NEAR(r.stats.late_share, 0.8, 0.05);
    EXPECT_NEAR(static_cast<double>(r.stats.late_ns), 40e6, 2e6);
  }
  ASSERT_EQ(ranks[0].messages.size(), 1U);
  EXPECT_TRUE(
      testing::has(ranks[0].messages[0], "rank 2 is late: its program takes 90 ms for a round, 80 % more"))
      << ranks[0].messages[0];
  EXPECT_TRUE(ranks[1].messages.empty());
}

}  // namespace
}  // namespace tithe::chaos
