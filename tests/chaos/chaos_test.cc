// SPDX-License-Identifier: Apache-2.0
// Seeded jobs: README.md in this folder describes the random parameters and how to repeat a seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "chaos/oracles.h"
#include "support/pairs.h"

namespace tithe::chaos {
namespace {

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// The fault's position, from the event counts of an undisturbed run.
Fault placed(const Scenario& scenario, const RunRecord& baseline) {
  Fault f = scenario.fault;
  const double most = static_cast<double>(
      baseline.counts[static_cast<std::size_t>(f.who)][static_cast<std::size_t>(f.point)]);
  f.count = 1 + static_cast<std::uint64_t>(scenario.place * most);
  return f;
}

// The states from which all ranks can restart after the same number of rounds; empty if there are none.
std::vector<Bytes8> states_of(const RunRecord& run_record, const Fault& fault, int& round) {
  round = -1;
  for (std::size_t r = 0; r < run_record.ends.size(); ++r)
    if (survives(run_record, fault, static_cast<Rank>(r)))
      round = std::max(round, run_record.ends[r].committed);
  std::vector<Bytes8> states;
  for (std::size_t r = 0; r < run_record.ends.size() && round >= 0; ++r) {
    const RankEnd& end = run_record.ends[r];
    if (end.committed == round && !end.state.empty())
      states.push_back(end.state);
    else if (round > 0 && !run_record.rounds[r][static_cast<std::size_t>(round - 1)].saved.empty())
      states.push_back(run_record.rounds[r][static_cast<std::size_t>(round - 1)].saved);
    else
      return {};
  }
  return states;
}

std::vector<Violation> play(const Scenario& scenario) {
  const RunRecord baseline = run(
      scenario, {.conditions = {}, .fault = {}, .lanes = 0, .from = 0, .to = scenario.rounds, .gpus = false});
  Oracles oracles(scenario, baseline);
  oracles.judge_baseline();
  const Fault fault = placed(scenario, baseline);
  const int to = scenario.restart >= 0 ? scenario.restart : scenario.rounds;
  const RunRecord run_record =
      run(scenario,
          {.conditions = scenario.conditions, .fault = fault, .lanes = scenario.lanes, .from = 0, .to = to});
  oracles.judge(run_record, fault, 0, to);
  int round = 0;
  const std::vector<Bytes8> states = states_of(run_record, fault, round);
  if (!states.empty() && round < scenario.rounds) {
    const RunRecord again = run(scenario, {.conditions = scenario.conditions,
                                           .fault = {},
                                           .lanes = scenario.lanes,
                                           .from = round,
                                           .to = scenario.rounds,
                                           .states = &states});
    oracles.judge_restored(again, run_record, round, scenario.rounds);
  }
  return oracles.violations();
}

// TITHE_CHAOS_IGNORE=honest,saved: oracles with a known failure. Nothing is ignored by default.
bool ignored(const std::string& oracle) {
  const char* list = std::getenv("TITHE_CHAOS_IGNORE");
  return list != nullptr && fmt::format(",{},", list).find(fmt::format(",{},", oracle)) != std::string::npos;
}

std::string violations(const Scenario& scenario) {
  std::string text;
  for (const Violation& b : play(scenario))
    if (!ignored(b.oracle)) text += fmt::format("  {}: {}\n", b.oracle, b.text);
  return text;
}

void hold(std::uint64_t seed) {
  Scenario scenario = draw(seed);
  scenario.lanes = static_cast<int>(number("TITHE_CHAOS_LANES", static_cast<std::uint64_t>(scenario.lanes)));
  const std::string text = violations(scenario);
  if (!text.empty())
    ADD_FAILURE() << "TITHE_CHAOS_SEED=" << seed << " build/tests/chaos_tests --gtest_filter=Chaos.OneSeed\n"
                  << account(scenario) << text;
}

constexpr int kBlocks = 40;

class Seeds : public ::testing::TestWithParam<int> {};

// TITHE_CHAOS_SEEDS of them from TITHE_CHAOS_FIRST on, in blocks so that shards share them. TITHE_TEST_FULL=1: 2,000.
TEST_P(Seeds, KeepTheLawsAndNameTheRightRank) {
  const std::uint64_t seeds = number("TITHE_CHAOS_SEEDS", harness::full_products() ? 2000 : 600);
  const std::uint64_t first = number("TITHE_CHAOS_FIRST", 1);
  for (std::uint64_t s = static_cast<std::uint64_t>(GetParam()); s < seeds; s += kBlocks) {
    hold(first + s);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Chaos, Seeds, ::testing::Range(0, kBlocks));

TEST(Chaos, OneSeed) {
  if (std::getenv("TITHE_CHAOS_SEED") == nullptr) GTEST_SKIP() << "TITHE_CHAOS_SEED names one";
  hold(number("TITHE_CHAOS_SEED", 1));
}

// A scenario is a function of the seed, and a run without lanes is a function of the scenario.
TEST(Chaos, SameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Scenario scenario = draw(seed);
    EXPECT_EQ(account(scenario), account(draw(seed)));
    const chaos::Run how{
        .conditions = scenario.conditions, .fault = {}, .lanes = 0, .from = 0, .to = scenario.rounds};
    EXPECT_EQ(chaos::run(scenario, how).counts, chaos::run(scenario, how).counts) << seed;
  }
}

}  // namespace
}  // namespace tithe::chaos
